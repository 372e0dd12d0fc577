//! Text classification.

use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use zoo_attention::MultiHeadAttention;
use zoo_config::{ClassifierSpec, Config, Data, HanSpec, Sentences};
use zoo_data::metrics::ConfusionMatrix;
use zoo_data::{
    DocumentIds, Labelled, LabelledIds, Labels, LengthRule, Tokenizer, split_sentences,
};
use zoo_kernels::smoothed_cross_entropy;
use zoo_models::{Classifier, ClassifierConfig, Documents, Han, HanConfig, ModelError, Tokens};
use zoo_viz::{Document, Part, Sentence, Word};

use super::tokenizers::{TOKENIZER, shorten, single_tokenizer};
use super::{Example, Inference, Logits, Note, Section, Task, TaskModel, add_penalty, map_batches};
use crate::attend::{
    AXES, AttentionRequest, AttentionView, check_not_empty, head_maps, no_tokens, token_texts,
};
use crate::evaluate::{Evaluator, Sample, TaskMetrics};
use crate::trained::TrainedTask;
use crate::{DataSplit, Result, TrainError, TrainedRun};

const LABELS: &str = "labels.json";

#[derive(Debug)]
pub(crate) struct Classification<M> {
    tokenizer: Tokenizer,
    labels: Labels,
    model: PhantomData<fn() -> M>,
}

pub(crate) trait ClassificationModel: TaskModel {
    type Example: Example;

    fn init(
        section: &Self::Section,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError>;

    fn encode(
        task: &Classification<Self>,
        config: &Config,
        split: DataSplit,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<Self::Example>>;

    fn label(example: &Self::Example) -> usize;

    fn ids(example: &Self::Example) -> Vec<u32>;

    /// Logits `[batch, classes]`.
    fn logits(&self, examples: &[&Self::Example], device: &Device) -> Logits<2>;

    /// The prediction for an example, which was encoded from a text, and its attention weights.
    fn attention_parts(
        &self,
        example: &Self::Example,
        task: &Classification<Self>,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<(ClassPrediction, AttentionView)>;
}

impl TaskModel for Classifier {
    type Section = ClassifierSpec;

    fn parameters(&self) -> usize {
        Classifier::parameters(self)
    }

    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        self.layers.iter().map(|layer| &layer.attention).collect()
    }

    fn longest_example(&self) -> Option<usize> {
        // The class token takes a position.
        let class_token = usize::from(self.cls.is_some());
        Some(self.limits().longest?.saturating_sub(class_token))
    }
}

impl ClassificationModel for Classifier {
    type Example = LabelledIds;

    fn init(
        section: &ClassifierSpec,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = ClassifierConfig {
            vocabulary,
            classes,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn encode(
        task: &Classification<Self>,
        config: &Config,
        split: DataSplit,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<LabelledIds>> {
        let tokenizer = &task.tokenizer;
        let mut ids = tokenizer.encode_labelled(split.name(), texts, &task.labels)?;
        if let Data::Labelled(data) = &config.data {
            shorten(LengthRule::Truncate, split, &mut ids, data.max_length, note)?;
        }
        Ok(ids)
    }

    fn label(example: &LabelledIds) -> usize {
        example.label
    }

    fn ids(example: &LabelledIds) -> Vec<u32> {
        example.ids.clone()
    }

    fn logits(&self, examples: &[&LabelledIds], device: &Device) -> Logits<2> {
        let texts: Vec<&[u32]> = examples.iter().map(|it| it.ids.as_slice()).collect();
        let tokens = Tokens::new(&texts, self.limits(), device)?;
        let penalty = self.config().spec.entropy_penalty;
        if penalty == 0.0 || !device.is_autodiff() {
            return Ok((self.forward(&tokens), None));
        }
        let (logits, entropy) = self.forward_with_entropy(&tokens)?;
        Ok((logits, Some(entropy.mul_scalar(penalty))))
    }

    fn attention_parts(
        &self,
        example: &LabelledIds,
        task: &Classification<Self>,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<(ClassPrediction, AttentionView)> {
        let input = Tokens::new(&[&example.ids], self.limits(), &trained.opened.device);
        let input = input.map_err(TrainError::model("--text"))?;
        let tokens = token_texts(&task.tokenizer, &example.ids);
        let mut positions = tokens.clone();
        if self.cls.is_some() {
            positions.insert(0, "<cls>".to_owned());
        }
        let n = positions.len();
        request.queries.check(&[n])?;
        let heads = self.layers.len() * self.config().spec.n_heads;
        let mut selection = vec![];
        let rows = request
            .queries
            .rows("text", [n, n], heads, &mut selection)?;
        let weights = self.attention_weights_of(&input, &rows);
        let queries = (&*positions, &*rows);
        let layers = head_maps("Self-attention", AXES, queries, &positions, weights.layers)?;
        let mut parts = vec![layers];
        if let Some(pooling) = weights.pooling {
            let [_, seq] = pooling.dims();
            let weights = vec![pooling.reshape([1, 1, 1, seq])];
            let query = (&["text".to_owned()][..], &[0][..]);
            parts.push(head_maps("Pooling", AXES, query, &tokens, weights)?);
        }
        let logits: Vec<f64> = weights.logits.into_data().iter::<f64>().collect();
        let view = AttentionView {
            selection,
            parts,
            ..AttentionView::default()
        };
        Ok((predict(&task.labels, &logits), view))
    }
}

impl TaskModel for Han {
    type Section = HanSpec;

    fn parameters(&self) -> usize {
        Han::parameters(self)
    }
}

impl ClassificationModel for Han {
    type Example = DocumentIds;

    fn init(
        section: &HanSpec,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let config = HanConfig {
            vocabulary,
            classes,
            spec: section.clone(),
        };
        config.try_init(device)
    }

    fn encode(
        task: &Classification<Self>,
        config: &Config,
        split: DataSplit,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<DocumentIds>> {
        let encode = |sentences: Sentences| {
            let name = split.name();
            task.tokenizer
                .encode_documents(name, texts, &task.labels, sentences)
        };
        let mut ids = encode(sentence_rule(config))?;
        let Data::Labelled(data) = &config.data else {
            return Ok(ids);
        };
        if let Some(max) = data.max_sentences {
            let is_shortened = |document: &mut DocumentIds| document.truncate_sentences(max) > 0;
            let count = ids.iter_mut().map(is_shortened).filter(|it| *it).count();
            if count > 0 {
                note(&format!(
                    "{}: {count} documents truncated to {max} sentences",
                    split.name()
                ));
            }
        }
        shorten(LengthRule::Truncate, split, &mut ids, data.max_words, note)?;
        Ok(ids)
    }

    fn label(example: &DocumentIds) -> usize {
        example.label
    }

    fn ids(example: &DocumentIds) -> Vec<u32> {
        example.sentences.concat()
    }

    fn logits(&self, examples: &[&DocumentIds], device: &Device) -> Logits<2> {
        let documents: Vec<&[Vec<u32>]> = examples.iter().map(|it| &*it.sentences).collect();
        let documents = Documents::new(&documents, self.limits(), device)?;
        Ok((self.forward(&documents).logits, None))
    }

    fn attention_parts(
        &self,
        example: &DocumentIds,
        task: &Classification<Self>,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<(ClassPrediction, AttentionView)> {
        let document = &example.sentences;
        let documents = Documents::new(&[document], self.limits(), &trained.opened.device);
        let output = self.forward(&documents.map_err(TrainError::model("--text"))?);
        let [_, _, max_words] = output.word_weights.dims();
        let words: Vec<f32> = output.word_weights.into_data().iter::<f32>().collect();
        let sentences: Vec<f32> = output.sentence_weights.into_data().iter::<f32>().collect();
        // Unknown words are shown as they are written.
        let written = split_sentences(request.text, sentence_rule(&trained.config)).into_iter();
        let written = written.map(|sentence| task.tokenizer.written(sentence));
        let written: Vec<Vec<Option<String>>> = written.collect::<Result<_, _>>()?;
        let sentence = |(index, ids): (usize, &Vec<u32>)| {
            let word = |(position, (text, weight)): (usize, (String, &f32))| {
                let written = written.get(index).and_then(|words| words.get(position));
                let written = written.cloned().flatten();
                Word {
                    is_unknown: written.is_some(),
                    text: written.unwrap_or(text),
                    weight: *weight,
                }
            };
            let texts = token_texts(&task.tokenizer, ids).into_iter();
            let texts = texts.zip(&words[index * max_words..]).enumerate();
            Sentence {
                weight: sentences[index],
                words: texts.map(word).collect(),
            }
        };
        let weighted = document.iter().enumerate().map(sentence).collect();
        let logits: Vec<f64> = output.logits.into_data().iter::<f64>().collect();
        let prediction = predict(&task.labels, &logits);
        let classes = prediction.classes.iter();
        let classes = classes.map(|(label, prob)| (label.clone(), *prob as f32));
        let document = Document::new("Document", weighted)?.with_classes(classes.collect());
        let view = AttentionView {
            parts: vec![Part::Document(document)],
            ..AttentionView::default()
        };
        Ok((prediction, view))
    }
}

impl<M: ClassificationModel> Task for Classification<M> {
    type Model = M;
    type Texts = Vec<Labelled>;
    type TokenData = Vec<M::Example>;
    type Example = M::Example;

    fn prepare(config: &Config, train: &Vec<Labelled>) -> Result<Self> {
        let labels = Labels::from_examples(train)?;
        let texts = train.iter().map(|example| example.text.as_str());
        Ok(Self {
            tokenizer: single_tokenizer(config, texts)?,
            labels,
            model: PhantomData,
        })
    }

    fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(LABELS);
        let text = std::fs::read_to_string(&path).map_err(TrainError::file(&path))?;
        Ok(Self {
            tokenizer: Tokenizer::load(&folder.join(TOKENIZER))?,
            labels: serde_json::from_str(&text).map_err(TrainError::content(&path))?,
            model: PhantomData,
        })
    }

    fn files(&self) -> Result<Vec<(&'static str, String)>> {
        let labels = serde_json::to_string_pretty(&self.labels);
        Ok(vec![
            (TOKENIZER, self.tokenizer.to_json()?),
            (LABELS, labels.map_err(TrainError::content(LABELS))?),
        ])
    }

    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>) {
        (&self.tokenizer, None)
    }

    fn encode(
        &self,
        config: &Config,
        split: DataSplit,
        texts: &Vec<Labelled>,
        note: Note<'_>,
    ) -> Result<Vec<M::Example>> {
        M::encode(self, config, split, texts, note)
    }

    fn model(&self, section: &Section<Self>, device: &Device) -> Result<M, ModelError> {
        let classes = self.labels.names().len();
        M::init(section, self.tokenizer.vocab_size(), classes, device)
    }

    fn loss(
        model: &M,
        examples: &[&M::Example],
        label_smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let rows = examples.len();
        let labels: Vec<i64> = examples.iter().map(|it| M::label(it) as i64).collect();
        let (logits, penalty) = model.logits(examples, device)?;
        let labels = Tensor::from_data(TensorData::new(labels, [rows]), &logits.device());
        let loss = smoothed_cross_entropy(logits, labels, &vec![true; rows], label_smoothing);
        Ok(add_penalty(loss, penalty))
    }

    fn task_metrics(
        &self,
        model: &M,
        examples: &[M::Example],
        _: &Vec<Labelled>,
        evaluator: &Evaluator,
    ) -> Result<(TaskMetrics, Vec<Sample>)> {
        let labels = &self.labels;
        let mut matrix = ConfusionMatrix::new(labels.names().iter().map(String::as_str))?;
        let name = |class: usize| labels.name(class).unwrap_or("?").to_owned();
        let mut samples = vec![];
        let logits = all_logits(model, examples, &evaluator.device, "validation")?;
        for (example, logits) in examples.iter().zip(logits) {
            let label = M::label(example);
            let class = argmax(&logits);
            matrix.add(label, class)?;
            if samples.len() < evaluator.samples {
                samples.push(Sample {
                    source: self.tokenizer.decode(&M::ids(example))?,
                    reference: Some(name(label)),
                    prediction: name(class),
                });
            }
        }
        Ok((TaskMetrics::Classification(matrix), samples))
    }

    fn attention_view(
        &self,
        model: &M,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView> {
        let mut length_notes = vec![];
        let texts = [request.text];
        let examples = self.encode_unlabelled(&trained.config, &texts, &mut |note: &str| {
            length_notes.push(note.to_owned());
        })?;
        let example = examples.first().ok_or_else(|| no_tokens("--text"))?;
        check_not_empty("--text", &M::ids(example))?;
        let (prediction, mut view) = model.attention_parts(example, self, trained, request)?;
        let percent = 100.0 * prediction.classes.first().map_or(0.0, |(_, prob)| *prob);
        let predicted = format!("predicted: {}, {percent:.1}%", prediction.label());
        view.notes = [vec![predicted], length_notes].concat();
        Ok(view)
    }

    fn inference(trained: &TrainedTask<Self>) -> Inference<'_> {
        Inference::Classify(trained)
    }
}

impl<M: ClassificationModel> Classification<M> {
    fn encode_unlabelled(
        &self,
        config: &Config,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<M::Example>> {
        // Examples need a label; it is not used.
        let label = self.labels.name(0).unwrap_or_default();
        let texts = texts.iter().map(|text| Labelled::new(label, *text));
        let texts: Vec<Labelled> = texts.collect();
        M::encode(self, config, DataSplit::Test, &texts, note)
    }
}

/// How the documents of a config are split into sentences.
fn sentence_rule(config: &Config) -> Sentences {
    if let Data::Labelled(data) = &config.data {
        return data.sentences.unwrap_or(Sentences::Punctuation);
    }
    // Synthetic documents have one sentence per line.
    Sentences::Lines
}

fn all_logits<M: ClassificationModel>(
    model: &M,
    examples: &[M::Example],
    device: &Device,
    what: &str,
) -> Result<Vec<Vec<f64>>> {
    map_batches(examples, |rows| {
        let logits = model.logits(rows, device);
        let (logits, _) = logits.map_err(TrainError::model(what))?;
        let [_, classes] = logits.dims();
        let logits: Vec<f64> = logits.into_data().iter::<f64>().collect();
        Ok(logits.chunks(classes).map(<[f64]>::to_vec).collect())
    })
}

/// The predicted class probabilities of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassPrediction {
    /// Every class with its probability, most likely first.
    pub classes: Vec<(String, f64)>,
}

impl ClassPrediction {
    /// The most likely class.
    pub fn label(&self) -> &str {
        self.classes.first().map_or("", |(label, _)| label)
    }
}

pub(crate) trait TextClassifier {
    fn classify(
        &self,
        trained: &TrainedRun,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<ClassPrediction>>;
}

impl<M: ClassificationModel> TextClassifier for TrainedTask<Classification<M>> {
    fn classify(
        &self,
        trained: &TrainedRun,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<ClassPrediction>> {
        let examples = self.task.encode_unlabelled(&trained.config, texts, note)?;
        let logits = all_logits(&self.model, &examples, &trained.opened.device, "text")?;
        let predict = |logits: &Vec<f64>| predict(&self.task.labels, logits);
        Ok(logits.iter().map(predict).collect())
    }
}

/// The index of the largest logit; the first one of equals.
fn argmax(logits: &[f64]) -> usize {
    let order = |a: &usize, b: &usize| logits[*a].total_cmp(&logits[*b]);
    (0..logits.len()).rev().max_by(order).unwrap_or(0)
}

fn predict(labels: &Labels, logits: &[f64]) -> ClassPrediction {
    let max = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = logits.iter().map(|logit| (logit - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    let names = labels.names().iter().cloned();
    let mut classes: Vec<_> = names.zip(exps.iter().map(|exp| exp / sum)).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    ClassPrediction { classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_sorted_probabilities() {
        let labels =
            Labels::from_examples(&[Labelled::new("a", ""), Labelled::new("b", "")]).unwrap();
        let logits = [1000.0, 1000.0 + 3_f64.ln()];
        let prediction = predict(&labels, &logits);
        assert_eq!((prediction.label(), argmax(&logits)), ("b", 1));
        assert_eq!(argmax(&[0.5, 2.0, 2.0, 1.0]), 1, "the first of equals");
        let probs: Vec<f64> = prediction.classes.iter().map(|(_, prob)| *prob).collect();
        assert!((probs[0] - 0.75).abs() < 1e-12 && (probs[1] - 0.25).abs() < 1e-12);
    }
}
