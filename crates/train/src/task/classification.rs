//! Texts whose class is told.

use std::marker::PhantomData;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use zoo_config::{ClassifierSpec, Config, Data, HanSpec, Pooling};
use zoo_data::metrics::{ConfusionMatrix, Perplexity};
use zoo_data::{DocumentIds, Labelled, LabelledIds, Labels, LengthRule, Parts, Tokenizer};
use zoo_kernels::smoothed_cross_entropy;
use zoo_models::{Classifier, ClassifierConfig, Documents, Han, HanConfig, ModelError, Tokens};
use zoo_viz::{Document, Part, Sentence, Word};

use super::texts::{labelled_text, read_labelled, taken};
use super::tokens::{TOKENIZER, load_labels, one_tokenizer, sentence_rule, shorten};
use super::{Note, Section, Task, TaskModel, TextExample, add_loss, in_batches};
use crate::attend::{Seen, maps, not_empty, nothing, written};
use crate::judge::{Judge, Judgement, Outcome, Sample};
use crate::trained::TrainedTask;
use crate::{DataPart, Source, TrainError, Trained};

/// Learning to tell the class of a text.
#[derive(Debug)]
pub struct Classification<M: ClassificationModel> {
    section: M::Section,
    reader: Reader,
    model: PhantomData<fn() -> M>,
}

/// What makes tokens of texts, which are of these classes.
#[derive(Debug)]
pub struct Reader {
    tokenizer: Tokenizer,
    labels: Labels,
}

/// A model that tells classes.
pub trait ClassificationModel: TaskModel {
    /// How it reads a text.
    type Example: TextExample;

    /// The model for so many tokens and classes.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if there is no such model.
    fn init(
        section: &Self::Section,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError>;

    /// Tokens that a text may have, if that is limited.
    fn longest(section: &Self::Section) -> Option<usize>;

    /// Texts as tokens.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`]: a class that is not among those to learn from.
    fn encode(
        reader: &Reader,
        config: &Config,
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<Self::Example>, TrainError>;

    /// The class of an example.
    fn label(example: &Self::Example) -> usize;

    /// The tokens of an example.
    fn ids(example: &Self::Example) -> Vec<u32>;

    /// What it says of the examples, `[batch, classes]`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if one of them is too long.
    fn logits(&self, examples: &[&Self::Example], device: &Device)
    -> Result<Tensor<2>, ModelError>;

    /// The logits of a training pass, and what is added to its loss.
    ///
    /// # Errors
    ///
    /// As [`logits`](Self::logits).
    fn train_logits(
        &self,
        examples: &[&Self::Example],
        device: &Device,
    ) -> Result<(Tensor<2>, Option<Tensor<1>>), ModelError> {
        Ok((self.logits(examples, device)?, None))
    }

    /// What it says of a text, and where it attends to.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if the text is too long, or that cannot be drawn.
    fn look(
        &self,
        example: &Self::Example,
        reader: &Reader,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>), TrainError>;
}

impl ClassificationModel for Classifier {
    type Example = LabelledIds;

    fn init(
        section: &ClassifierSpec,
        vocabulary: usize,
        classes: usize,
        device: &Device,
    ) -> Result<Self, ModelError> {
        let spec = section.clone();
        let config = ClassifierConfig {
            vocabulary,
            classes,
            spec,
        };
        config.try_init(device)
    }

    fn longest(section: &ClassifierSpec) -> Option<usize> {
        // The vector that is put before the tokens takes a position, too.
        let taken = usize::from(section.pooling == Pooling::Cls);
        let longest = section.positions.longest()?;
        Some(longest.saturating_sub(taken))
    }

    fn encode(
        reader: &Reader,
        config: &Config,
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<LabelledIds>, TrainError> {
        let Reader { tokenizer, labels } = reader;
        let mut ids = tokenizer.encode_labelled(part.word(), texts, labels)?;
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

    fn logits(&self, examples: &[&LabelledIds], device: &Device) -> Result<Tensor<2>, ModelError> {
        let texts: Vec<&[u32]> = examples.iter().map(|it| it.ids.as_slice()).collect();
        Ok(self.forward(&Tokens::new(&texts, self.limits(), device)?))
    }

    fn train_logits(
        &self,
        examples: &[&LabelledIds],
        device: &Device,
    ) -> Result<(Tensor<2>, Option<Tensor<1>>), ModelError> {
        let penalty = self.config().spec.entropy_penalty;
        if penalty == 0.0 {
            return Ok((self.logits(examples, device)?, None));
        }
        let texts: Vec<&[u32]> = examples.iter().map(|it| it.ids.as_slice()).collect();
        let tokens = Tokens::new(&texts, self.limits(), device)?;
        let (logits, entropy) = self.forward_with_entropy(&tokens)?;
        Ok((logits, Some(entropy.mul_scalar(penalty))))
    }

    /// Every layer and head, and what is pooled.
    fn look(
        &self,
        example: &LabelledIds,
        reader: &Reader,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>), TrainError> {
        let tokens = Tokens::new(&[&example.ids], self.limits(), device);
        let look = self.look(&tokens.map_err(TrainError::model("--text"))?);
        let tokens = written(&reader.tokenizer, &example.ids);
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
        Ok((reader.classified(look.logits), parts))
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
        let spec = section.clone();
        let config = HanConfig {
            vocabulary,
            classes,
            spec,
        };
        config.try_init(device)
    }

    fn longest(_: &HanSpec) -> Option<usize> {
        None
    }

    fn encode(
        reader: &Reader,
        config: &Config,
        part: DataPart,
        texts: &[Labelled],
        note: Note<'_>,
    ) -> Result<Vec<DocumentIds>, TrainError> {
        let Reader { tokenizer, labels } = reader;
        let rule = sentence_rule(config);
        let mut ids = tokenizer.encode_documents(part.word(), texts, labels, rule)?;
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

    fn logits(&self, examples: &[&DocumentIds], device: &Device) -> Result<Tensor<2>, ModelError> {
        let documents: Vec<&[Vec<u32>]> = examples.iter().map(|it| &*it.sentences).collect();
        let documents = Documents::new(&documents, self.limits(), device)?;
        Ok(self.forward(&documents).logits)
    }

    /// Words and sentences.
    fn look(
        &self,
        example: &DocumentIds,
        reader: &Reader,
        device: &Device,
    ) -> Result<(Classified, Vec<Part>), TrainError> {
        let document = &example.sentences;
        let documents = Documents::new(&[document], self.limits(), device);
        let judged = self.forward(&documents.map_err(TrainError::model("--text"))?);
        let [_, _, most] = judged.word_weights.dims();
        let words: Vec<f32> = judged.word_weights.into_data().iter::<f32>().collect();
        let sentences: Vec<f32> = judged.sentence_weights.into_data().iter::<f32>().collect();
        let sentence = |(at, ids): (usize, &Vec<u32>)| {
            let words = written(&reader.tokenizer, ids)
                .into_iter()
                .zip(&words[at * most..]);
            Sentence {
                weight: sentences[at],
                words: words
                    .map(|(text, weight)| Word {
                        text,
                        weight: *weight,
                    })
                    .collect(),
            }
        };
        let shown = document.iter().enumerate().map(sentence).collect();
        let classified = reader.classified(judged.logits);
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

    const UNIT: &'static str = "documents";
    const FILES: &'static str = "--labelled FILE";
    const USAGE: &'static str = "`zoo classify` tells classes of texts by it";

    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Vec<Labelled>>, TrainError> {
        read_labelled(config, note)
    }

    fn read_files(
        config: &Config,
        source: &Source,
        note: Note<'_>,
    ) -> Result<Option<Vec<Labelled>>, TrainError> {
        match source {
            Source::Labelled(path) => taken(labelled_text(config, path).read()?, note).map(Some),
            _ => Ok(None),
        }
    }

    fn size(texts: &Vec<Labelled>) -> usize {
        texts.len()
    }

    fn prepare(
        config: &Config,
        section: &Section<Self>,
        train: &Vec<Labelled>,
    ) -> Result<Self, TrainError> {
        let labels = Labels::of(train)?;
        let texts = train.iter().map(|example| example.text.as_str());
        let tokenizer = one_tokenizer(config, texts)?;
        Ok(Self {
            section: section.clone(),
            reader: Reader { tokenizer, labels },
            model: PhantomData,
        })
    }

    fn load(section: &Section<Self>, folder: &Path) -> Result<Self, TrainError> {
        let labels = load_labels(folder)?;
        let tokenizer = Tokenizer::load(&folder.join(TOKENIZER))?;
        Ok(Self {
            section: section.clone(),
            reader: Reader { tokenizer, labels },
            model: PhantomData,
        })
    }

    fn tokenizers(&self) -> Vec<(&'static str, &Tokenizer)> {
        vec![(TOKENIZER, &self.reader.tokenizer)]
    }

    fn labels(&self) -> Option<&Labels> {
        Some(&self.reader.labels)
    }

    fn vocabularies(&self) -> (usize, Option<usize>) {
        (self.reader.tokenizer.vocabulary(), None)
    }

    fn encode(
        &self,
        config: &Config,
        part: DataPart,
        texts: &Vec<Labelled>,
        note: Note<'_>,
    ) -> Result<Vec<M::Example>, TrainError> {
        M::encode(&self.reader, config, part, texts, note)
    }

    fn longest(&self) -> Option<usize> {
        M::longest(&self.section)
    }

    fn model(&self, device: &Device) -> Result<M, ModelError> {
        let Reader { tokenizer, labels } = &self.reader;
        let classes = labels.names().len();
        M::init(&self.section, tokenizer.vocabulary(), classes, device)
    }

    fn loss(
        model: &M,
        examples: &[&M::Example],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError> {
        let rows = examples.len();
        let right: Vec<i64> = examples.iter().map(|it| M::label(it) as i64).collect();
        let (logits, penalty) = match device.is_autodiff() {
            true => model.train_logits(examples, device)?,
            false => (model.logits(examples, device)?, None),
        };
        let right = Tensor::from_data(TensorData::new(right, [rows]), &logits.device());
        let counts = vec![true; rows];
        let loss = smoothed_cross_entropy(logits, right, &counts, smoothing);
        Ok(match penalty {
            Some(penalty) => loss + penalty,
            None => loss,
        })
    }

    fn evaluate(
        &self,
        model: &M,
        examples: &[M::Example],
        _: &Vec<Labelled>,
        judge: &Judge,
    ) -> Result<Judgement, TrainError> {
        let Reader { tokenizer, labels } = &self.reader;
        let mut matrix = ConfusionMatrix::new(labels.names().iter().map(String::as_str))?;
        let mut told = vec![0; examples.len()];
        let mut loss = Perplexity::default();
        for places in in_batches(examples)? {
            let rows: Vec<&M::Example> = places.iter().map(|at| &examples[*at]).collect();
            let classes = model
                .logits(&rows, &judge.device)
                .map_err(TrainError::model("validation"))?
                .argmax(1)
                .into_data();
            for (at, class) in places.iter().zip(classes.iter::<i64>()) {
                told[*at] = class as usize;
            }
            add_loss::<Self>(model, &rows, &judge.device, &mut loss)?;
        }
        let name = |class: usize| labels.name(class).unwrap_or("?").to_owned();
        let mut samples = vec![];
        for (example, class) in examples.iter().zip(&told) {
            let label = M::label(example);
            matrix.add(label, *class)?;
            if samples.len() < judge.samples {
                samples.push(Sample {
                    given: tokenizer.decode(&M::ids(example))?,
                    wanted: Some(name(label)),
                    said: name(*class),
                });
            }
        }
        Ok(Judgement {
            loss,
            outcome: Outcome::Classes(matrix),
            samples,
        })
    }

    fn look(
        &self,
        model: &M,
        trained: &Trained,
        text: &str,
        _: Option<&str>,
    ) -> Result<Seen, TrainError> {
        let mut cut = vec![];
        let read = self.read_unlabelled(&trained.config, &[text], &mut |note: &str| {
            cut.push(note.to_owned());
        })?;
        let example = read.first().ok_or_else(|| nothing("--text"))?;
        not_empty("--text", &M::ids(example))?;
        let device = &trained.opened.device;
        let (classified, parts) = ClassificationModel::look(model, example, &self.reader, device)?;
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
    ) -> Result<Vec<M::Example>, TrainError> {
        // Examples have a class, which nobody looks at here.
        let any = self.reader.labels.name(0).unwrap_or_default();
        let texts: Vec<Labelled> = texts.iter().map(|text| Labelled::new(any, *text)).collect();
        M::encode(&self.reader, config, DataPart::Test, &texts, note)
    }
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

/// A trained model that tells classes.
pub trait Classifies {
    /// The classes of texts, in their order. Texts are shortened as those that were learned from.
    ///
    /// # Errors
    ///
    /// [`TrainError::Model`] if a text is too long for the model.
    fn classify(
        &self,
        trained: &Trained,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<Classified>, TrainError>;
}

impl<M: ClassificationModel> Classifies for TrainedTask<Classification<M>> {
    fn classify(
        &self,
        trained: &Trained,
        texts: &[&str],
        note: Note<'_>,
    ) -> Result<Vec<Classified>, TrainError> {
        let examples = self.task.read_unlabelled(&trained.config, texts, note)?;
        let mut said = vec![vec![]; examples.len()];
        for places in in_batches(&examples)? {
            let rows: Vec<&M::Example> = places.iter().map(|at| &examples[*at]).collect();
            let logits = self.model.logits(&rows, &trained.opened.device);
            let data = logits.map_err(TrainError::model("text"))?.into_data();
            let numbers: Vec<f64> = data.iter::<f64>().collect();
            let classes = numbers.len() / rows.len();
            for (at, row) in places.iter().zip(numbers.chunks(classes)) {
                said[*at] = row.to_vec();
            }
        }
        let labels = &self.task.reader.labels;
        Ok(said.iter().map(|logits| ranked(labels, logits)).collect())
    }
}

impl Reader {
    /// What the logits of one text say, `[1, classes]`.
    fn classified(&self, logits: Tensor<2>) -> Classified {
        let logits: Vec<f64> = logits.into_data().iter::<f64>().collect();
        ranked(&self.labels, &logits)
    }
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
        let said = ranked(&labels, &[1000.0, 1000.0 + 3_f64.ln()]);
        assert_eq!(said.label(), "b");
        let shares: Vec<f64> = said.classes.iter().map(|(_, share)| *share).collect();
        assert!((shares[0] - 0.75).abs() < 1e-12 && (shares[1] - 0.25).abs() < 1e-12);
    }
}
