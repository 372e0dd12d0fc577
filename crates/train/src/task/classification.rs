//! Texts whose class is told.

use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use zoo_config::{ClassifierSpec, Config, Data, HanSpec};
use zoo_data::metrics::ConfusionMatrix;
use zoo_data::{DocumentIds, Labelled, LabelledIds, Labels, LengthRule, Tokenizer};
use zoo_kernels::smoothed_cross_entropy;
use zoo_models::{Classifier, ClassifierConfig, Documents, Han, HanConfig, ModelError, Tokens};
use zoo_viz::{Document, Part, Sentence, Word};

use super::tokens::{TOKENIZER, one_tokenizer, sentence_rule, shorten};
use super::{Logits, Note, Section, Task, TaskModel, TextExample, by_length, penalised};
use crate::attend::{Seen, maps, not_empty, nothing, written};
use crate::evaluate::{Judge, Outcome, Sample};
use crate::trained::TrainedTask;
use crate::{DataPart, Result, TrainError, Trained};

const LABELS: &str = "labels.json";

/// Learning to tell the class of a text.
#[derive(Debug)]
pub(crate) struct Classification<M> {
    tokenizer: Tokenizer,
    labels: Labels,
    model: PhantomData<fn() -> M>,
}

pub(crate) trait ClassificationModel: TaskModel {
    /// How it reads a text.
    type Example: TextExample;

    fn init(
        section: &Self::Section,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError>;

    fn encode(
        task: &Classification<Self>,
        config: &Config,
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<Self::Example>>;

    fn label(example: &Self::Example) -> usize;

    fn ids(example: &Self::Example) -> Vec<u32>;

    /// What it predicts for the examples, `[batch, classes]`.
    fn logits(&self, examples: &[&Self::Example], device: &Device) -> Logits<2>;

    /// What it predicts for a text, and where it attends to.
    fn look(
        &self,
        example: &Self::Example,
        task: &Classification<Self>,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>)>;
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
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<LabelledIds>> {
        let mut ids = task
            .tokenizer
            .encode_labelled(part.word(), texts, &task.labels)?;
        if let Data::Labelled(data) = &config.data {
            shorten(LengthRule::Shorten, part, &mut ids, data.max_length, note)?;
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

    /// Every layer and head, and what is pooled.
    fn look(
        &self,
        example: &LabelledIds,
        task: &Classification<Self>,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>)> {
        let tokens = Tokens::new(&[&example.ids], self.limits(), device);
        let look = self.look(&tokens.map_err(TrainError::model("--text"))?);
        let tokens = written(&task.tokenizer, &example.ids);
        let mut positions = tokens.clone();
        if self.cls.is_some() {
            positions.insert(0, "<cls>".to_owned());
        }
        let mut parts = vec![maps("Self-attention", &positions, &positions, look.layers)?];
        if let Some(pooling) = look.pooling {
            let [_, seq] = pooling.dims();
            parts.push(maps(
                "Pooling: what of the text is classified",
                &["the text".to_owned()],
                &tokens,
                vec![pooling.reshape([1, 1, 1, seq])],
            )?);
        }
        let logits: Vec<f64> = look.logits.into_data().iter::<f64>().collect();
        Ok((ranked(&task.labels, &logits), parts))
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
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<DocumentIds>> {
        let rule = sentence_rule(config);
        let mut ids = task
            .tokenizer
            .encode_documents(part.word(), texts, &task.labels, rule)?;
        let Data::Labelled(data) = &config.data else {
            return Ok(ids);
        };
        if let Some(most) = data.max_sentences {
            let cut = ids.iter_mut().map(|document| document.keep_sentences(most));
            let count = cut.filter(|sentences| *sentences > 0).count();
            if count > 0 {
                note(&format!(
                    "{}: {count} documents of more than {most} sentences shortened",
                    part.word()
                ));
            }
        }
        shorten(LengthRule::Shorten, part, &mut ids, data.max_words, note)?;
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

    fn look(
        &self,
        example: &DocumentIds,
        task: &Classification<Self>,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>)> {
        let document = &example.sentences;
        let documents = Documents::new(&[document], self.limits(), device);
        let output = self.forward(&documents.map_err(TrainError::model("--text"))?);
        let [_, _, most] = output.word_weights.dims();
        let words: Vec<f32> = output.word_weights.into_data().iter::<f32>().collect();
        let sentences: Vec<f32> = output.sentence_weights.into_data().iter::<f32>().collect();
        let word = |(text, weight): (String, &f32)| Word {
            text,
            weight: *weight,
        };
        let sentence = |(at, ids): (usize, &Vec<u32>)| {
            let words = written(&task.tokenizer, ids)
                .into_iter()
                .zip(&words[at * most..]);
            Sentence {
                weight: sentences[at],
                words: words.map(word).collect(),
            }
        };
        let shown = document.iter().enumerate().map(sentence).collect();
        let logits: Vec<f64> = output.logits.into_data().iter::<f64>().collect();
        let classified = ranked(&task.labels, &logits);
        let shares = classified.classes.iter();
        let shares = shares.map(|(label, share)| (label.clone(), *share as f32));
        let document = Document::new("Document", shown)?.with_classes(shares.collect());
        Ok((classified, vec![Part::Document(document)]))
    }
}

impl<M: ClassificationModel> Task for Classification<M> {
    type Model = M;
    type Texts = Vec<Labelled>;
    type Ids = Vec<M::Example>;
    type Example = M::Example;

    const USAGE: &'static str = "`zoo classify` tells classes of texts by it";

    fn prepare(config: &Config, train: &Vec<Labelled>) -> Result<Self> {
        let labels = Labels::of(train)?;
        let texts = train.iter().map(|example| example.text.as_str());
        Ok(Self {
            tokenizer: one_tokenizer(config, texts)?,
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

    fn vocabularies(&self) -> (usize, Option<usize>) {
        (self.tokenizer.vocabulary(), None)
    }

    fn encode(
        &self,
        config: &Config,
        part: DataPart,
        texts: &Vec<Labelled>,
        note: Note<'_>,
    ) -> Result<Vec<M::Example>> {
        M::encode(self, config, part, texts, note)
    }

    fn model(&self, section: &Section<Self>, device: &Device) -> Result<M, ModelError> {
        let classes = self.labels.names().len();
        M::init(section, self.tokenizer.vocabulary(), classes, device)
    }

    fn loss(
        model: &M,
        examples: &[&M::Example],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let rows = examples.len();
        let right: Vec<i64> = examples.iter().map(|it| M::label(it) as i64).collect();
        let (logits, penalty) = model.logits(examples, device)?;
        let right = Tensor::from_data(TensorData::new(right, [rows]), &logits.device());
        let loss = smoothed_cross_entropy(logits, right, &vec![true; rows], smoothing);
        Ok(penalised(loss, penalty))
    }

    fn outcome(
        &self,
        model: &M,
        examples: &[M::Example],
        _: &Vec<Labelled>,
        judge: &Judge,
    ) -> Result<(Outcome, Vec<Sample>)> {
        let labels = &self.labels;
        let mut matrix = ConfusionMatrix::new(labels.names().iter().map(String::as_str))?;
        let name = |class: usize| labels.name(class).unwrap_or("?").to_owned();
        let mut samples = vec![];
        let logits = all_logits(model, examples, &judge.device, "validation")?;
        for (example, logits) in examples.iter().zip(logits) {
            let label = M::label(example);
            let class = largest(&logits);
            matrix.add(label, class)?;
            if samples.len() < judge.samples {
                samples.push(Sample {
                    given: self.tokenizer.decode(&M::ids(example))?,
                    wanted: Some(name(label)),
                    said: name(class),
                });
            }
        }
        Ok((Outcome::Classes(matrix), samples))
    }

    fn look(&self, model: &M, trained: &Trained, text: &str, _: Option<&str>) -> Result<Seen> {
        let mut cut = vec![];
        let read = self.read_unlabelled(&trained.config, &[text], &mut |note: &str| {
            cut.push(note.to_owned());
        })?;
        let example = read.first().ok_or_else(|| nothing("--text"))?;
        not_empty("--text", &M::ids(example))?;
        let device = &trained.opened.device;
        let (classified, parts) = ClassificationModel::look(model, example, self, device)?;
        let share = classified.classes.first().map_or(0.0, |(_, share)| *share);
        let told = format!("taken for {}, {:.1}%", classified.label(), 100.0 * share);
        let mut notes = vec![told];
        notes.extend(cut);
        Ok(Seen { notes, parts })
    }

    fn classifier(trained: &TrainedTask<Self>) -> Option<&dyn Classifies> {
        Some(trained)
    }
}

impl<M: ClassificationModel> Classification<M> {
    /// Texts of any class as the model reads them.
    fn read_unlabelled(
        &self,
        config: &Config,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<M::Example>> {
        // Examples have a class, which nobody looks at here.
        let any = self.labels.name(0).unwrap_or_default();
        let texts: Vec<Labelled> = texts.iter().map(|text| Labelled::new(any, *text)).collect();
        M::encode(self, config, DataPart::Test, &texts, note)
    }
}

fn all_logits<M: ClassificationModel>(
    model: &M,
    examples: &[M::Example],
    device: &Device,
    what: &str,
) -> Result<Vec<Vec<f64>>> {
    by_length(examples, |rows| {
        let (logits, _) = model
            .logits(rows, device)
            .map_err(TrainError::model(what))?;
        let [_, classes] = logits.dims();
        let logits: Vec<f64> = logits.into_data().iter::<f64>().collect();
        Ok(logits.chunks(classes).map(<[f64]>::to_vec).collect())
    })
}

/// What classes a text may be of.
#[derive(Debug, Clone, PartialEq)]
pub struct Classified {
    /// Every class with its probability, the likeliest first.
    pub classes: Vec<(String, f64)>,
}

impl Classified {
    /// The likeliest class.
    pub fn label(&self) -> &str {
        self.classes.first().map_or("", |(label, _)| label)
    }
}

pub(crate) trait Classifies {
    /// The classes of texts, in their order. Texts are shortened as those that were learned from.
    fn classify(
        &self,
        trained: &Trained,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<Classified>>;
}

impl<M: ClassificationModel> Classifies for TrainedTask<Classification<M>> {
    fn classify(
        &self,
        trained: &Trained,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<Classified>> {
        let examples = self.task.read_unlabelled(&trained.config, texts, note)?;
        let logits = all_logits(&self.model, &examples, &trained.opened.device, "text")?;
        let labels = &self.task.labels;
        Ok(logits.iter().map(|logits| ranked(labels, logits)).collect())
    }
}

/// The index of the largest logit; of equals, the first.
fn largest(logits: &[f64]) -> usize {
    let order = |a: &usize, b: &usize| logits[*a].total_cmp(&logits[*b]);
    (0..logits.len()).rev().max_by(order).unwrap_or(0)
}

/// Every class with its probability, the likeliest first; of equals, the first.
fn ranked(labels: &Labels, logits: &[f64]) -> Classified {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let shares: Vec<f64> = logits.iter().map(|logit| (logit - largest).exp()).collect();
    let sum: f64 = shares.iter().sum();
    let names = labels.names().iter().cloned();
    let mut classes: Vec<_> = names.zip(shares.iter().map(|share| share / sum)).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    Classified { classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_sum_to_one_and_the_likeliest_is_first() {
        let labels = Labels::of(&[Labelled::new("a", ""), Labelled::new("b", "")]).unwrap();
        let logits = [1000.0, 1000.0 + 3_f64.ln()];
        let said = ranked(&labels, &logits);
        assert_eq!((said.label(), largest(&logits)), ("b", 1));
        assert_eq!(largest(&[0.5, 2.0, 2.0, 1.0]), 1, "the first of equals");
        let shares: Vec<f64> = said.classes.iter().map(|(_, share)| *share).collect();
        assert!((shares[0] - 0.75).abs() < 1e-12 && (shares[1] - 0.25).abs() < 1e-12);
    }
}
