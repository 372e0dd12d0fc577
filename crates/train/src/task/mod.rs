//! Tasks: what a run learns, from its texts to its evaluation.
//!
//! A [`Task`] knows its texts, what makes tokens of them, its examples, its model and how good
//! that is. There are [`Translation`], [`Classification`] and [`LanguageModelling`]; which one a
//! config means is decided in one place, `with_task!`, and everything else is generic.

mod batches;
mod classification;
mod language;
mod models;
mod texts;
mod tokens;
mod translation;

use std::fmt::{Debug, Display};
use std::path::Path;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use zoo_attention::MultiHeadAttention;
use zoo_config::Config;
use zoo_data::metrics::Perplexity;
use zoo_data::{BatchSize, Batching, DocumentIds, Encoded, LabelledIds, Labels, PairIds, Parts};
use zoo_data::{Tokenizer, Windows};
use zoo_models::{ModelError, Summary};

pub(crate) use self::batches::Batches;
use self::batches::{Bucketed, Pieces};
pub(crate) use self::classification::Classifies;
pub use self::classification::{Classification, ClassificationModel, Classified};
pub use self::language::LanguageModelling;
pub(crate) use self::texts::read_texts;
pub(crate) use self::translation::Translates;
pub use self::translation::{Translated, Translation, TranslationModel, Written};
use crate::attend::Seen;
use crate::judge::{Judge, Judgement};
use crate::learn::{Checksum, PartFingerprint};
use crate::run::write_atomic;
use crate::trained::{Trained, TrainedTask};
use crate::{DataPart, Source, TrainError};

/// Examples that are computed side by side where nothing is learned.
pub(crate) const ROWS: usize = 64;

/// Takes lines about what was read, cut off or left out.
pub type Note<'a> = &'a mut dyn FnMut(&str);

/// What a run learns.
pub trait Task: Debug + Sized + Send + Sync + 'static {
    /// What learns.
    type Model: TaskModel;
    /// A part of the data as texts.
    type Texts: Debug + Default + Sync;
    /// A part of the data as tokens.
    type Ids: Ids<Example = Self::Example>;
    /// What a batch is made of.
    type Example: Example;

    /// What its texts are counted in.
    const UNIT: &'static str;
    /// The flags of `zoo eval` for texts of other files.
    const FILES: &'static str;
    /// The command that uses such a model.
    const USAGE: &'static str;

    /// Reads or generates the texts of a config.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] for files that cannot be used, [`TrainError::Refused`] for data of
    /// another task.
    fn read(config: &Config, note: Note<'_>) -> Result<Parts<Self::Texts>, TrainError>;

    /// Reads texts of other files; nothing if they are for another task.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] for files that cannot be used.
    fn read_files(
        config: &Config,
        source: &Source,
        note: Note<'_>,
    ) -> Result<Option<Self::Texts>, TrainError>;

    /// How many examples or characters there are.
    fn size(texts: &Self::Texts) -> usize;

    /// The task with tokenizers that are learned from these texts, or loaded, as the config says.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`].
    fn prepare(
        config: &Config,
        section: &Section<Self>,
        train: &Self::Texts,
    ) -> Result<Self, TrainError>;

    /// The task with the tokenizers that [`save`](Self::save) wrote into a run's folder.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] or [`TrainError::File`] if they are not there any more.
    fn load(section: &Section<Self>, folder: &Path) -> Result<Self, TrainError>;

    /// Its tokenizers, by the names of their files.
    fn tokenizers(&self) -> Vec<(&'static str, &Tokenizer)>;

    /// The classes to tell apart, if that is what is learned.
    fn labels(&self) -> Option<&Labels> {
        None
    }

    /// Writes its tokenizers into a run's folder.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`] or [`TrainError::File`].
    fn save(&self, folder: &Path) -> Result<(), TrainError> {
        for (name, tokenizer) in self.tokenizers() {
            write_atomic(&folder.join(name), tokenizer.to_json()?.as_bytes())?;
        }
        if let Some(labels) = self.labels() {
            let path = folder.join(tokens::LABELS);
            let text = serde_json::to_string_pretty(labels);
            write_atomic(&path, text.map_err(TrainError::content(&path))?.as_bytes())?;
        }
        Ok(())
    }

    /// The sizes of the vocabularies: of inputs, and of outputs if these are other texts.
    fn vocabularies(&self) -> (usize, Option<usize>);

    /// A part of the texts as tokens.
    ///
    /// # Errors
    ///
    /// [`TrainError::Data`]: a class that is not among those to learn from, nothing short enough.
    fn encode(
        &self,
        config: &Config,
        part: DataPart,
        texts: &Self::Texts,
        note: Note<'_>,
    ) -> Result<Self::Ids, TrainError>;

    /// The tokens of a window, where examples are windows of running text.
    fn context(&self) -> usize {
        0
    }

    /// Tokens that an example may have, if that is limited.
    fn longest(&self) -> Option<usize> {
        None
    }

    /// The model, with weights as they are drawn.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if there is no such model.
    fn model(&self, device: &Device) -> Result<Self::Model, ModelError>;

    /// The mean cross-entropy of what is predicted for the examples, `[1]` in `f32`.
    ///
    /// # Errors
    ///
    /// [`ModelError`] if the model cannot take one of them.
    fn loss(
        model: &Self::Model,
        examples: &[&Self::Example],
        smoothing: f64,
        device: &Device,
    ) -> Result<Tensor<1>, ModelError>;

    /// How good a model is at examples, which are made of these texts.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if it cannot take one of them.
    fn evaluate(
        &self,
        model: &Self::Model,
        examples: &[Self::Example],
        texts: &Self::Texts,
        judge: &Judge,
    ) -> Result<Judgement, TrainError>;

    /// Where a model attends to in a text.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if there is nothing in the text, [`TrainError::Model`] if it is
    /// too long.
    fn look(
        &self,
        model: &Self::Model,
        trained: &Trained,
        text: &str,
        target: Option<&str>,
    ) -> Result<Seen, TrainError>;

    /// A trained model that writes texts for texts, if this is one.
    fn translator(_: &TrainedTask<Self>) -> Option<&dyn Translates> {
        None
    }

    /// A trained model that tells classes, if this is one.
    fn classifier(_: &TrainedTask<Self>) -> Option<&dyn Classifies> {
        None
    }

    /// A trained model that continues texts, if this is one.
    fn generator(_: &TrainedTask<Self>) -> Option<&TrainedTask<LanguageModelling>> {
        None
    }
}

/// The config's section of a task's model.
pub type Section<T> = <<T as Task>::Model as TaskModel>::Section;

/// A model that can be trained here.
pub trait TaskModel: Module + Display + Sync + 'static {
    /// Its section of the config.
    type Section: Debug + Clone + Send + Sync;

    /// What it is made of.
    fn summary(&self) -> Summary;

    /// Its multi-head attentions.
    fn attentions(&self) -> Vec<&MultiHeadAttention> {
        vec![]
    }
}

/// Calls something generic with the task of a config and the section of its model.
macro_rules! with_task {
    ($config:expr, |$task:ident, $section:ident| $call:expr) => {
        match &$config.model {
            zoo_config::Model::Transformer($section) => {
                type $task = $crate::Translation<zoo_models::Transformer>;
                $call
            }
            zoo_config::Model::Seq2Seq($section) => {
                type $task = $crate::Translation<zoo_models::Seq2Seq>;
                $call
            }
            zoo_config::Model::Classifier($section) => {
                type $task = $crate::Classification<zoo_models::Classifier>;
                $call
            }
            zoo_config::Model::Han($section) => {
                type $task = $crate::Classification<zoo_models::Han>;
                $call
            }
            zoo_config::Model::Gpt($section) => {
                type $task = $crate::LanguageModelling;
                $call
            }
        }
    };
}
pub(crate) use with_task;

/// Something to learn from.
pub trait Example: Clone + Send + Sync + 'static {
    /// How many tokens or classes are predicted of it: what a loss is the mean of.
    fn predicted(&self) -> usize;

    /// How many tokens are read and predicted, as speed is counted.
    fn tokens(&self) -> usize;
}

/// An example of a text of its own.
pub trait TextExample: Example + Encoded {
    /// Adds its tokens, and its target or label, to checksums.
    fn add_to(&self, inputs: &mut Checksum, targets: &mut Checksum);
}

impl Example for PairIds {
    /// The target, and its end.
    fn predicted(&self) -> usize {
        self.target.len() + 1
    }

    fn tokens(&self) -> usize {
        self.source.len() + self.predicted()
    }
}

impl TextExample for PairIds {
    fn add_to(&self, inputs: &mut Checksum, targets: &mut Checksum) {
        inputs.add(&self.source);
        targets.add(&self.target);
    }
}

impl Example for LabelledIds {
    fn predicted(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.ids.len()
    }
}

impl TextExample for LabelledIds {
    fn add_to(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add(&self.ids);
        labels.add_number(self.label);
    }
}

impl Example for DocumentIds {
    fn predicted(&self) -> usize {
        1
    }

    fn tokens(&self) -> usize {
        self.sentences.iter().map(Vec::len).sum()
    }
}

impl TextExample for DocumentIds {
    fn add_to(&self, inputs: &mut Checksum, labels: &mut Checksum) {
        inputs.add_number(self.sentences.len());
        self.sentences.iter().for_each(|ids| inputs.add(ids));
        labels.add_number(self.label);
    }
}

/// A window of running text, and what comes after each of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextWindow {
    /// What is given.
    pub input: Vec<u32>,
    /// The same, one token on.
    pub target: Vec<u32>,
}

impl From<zoo_data::Window<'_>> for TextWindow {
    fn from(window: zoo_data::Window<'_>) -> Self {
        Self {
            input: window.input.to_vec(),
            target: window.target.to_vec(),
        }
    }
}

impl Example for TextWindow {
    fn predicted(&self) -> usize {
        self.target.len()
    }

    fn tokens(&self) -> usize {
        self.target.len()
    }
}

/// A part of the data as tokens: examples, or running text.
pub trait Ids {
    /// What a batch is made of.
    type Example;

    /// The batches to learn from.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if an example is larger than a batch may be, [`TrainError::Data`]
    /// if there is less than a window.
    fn batches(
        self,
        config: &Config,
        context: usize,
    ) -> Result<Box<dyn Batches<Example = Self::Example>>, TrainError>;

    /// The examples to evaluate with, at most so many.
    fn examples(self, context: usize, most: Option<usize>) -> Vec<Self::Example>;

    /// How many examples there are, and the tokens of the shortest, for an estimate of memory.
    fn shortest(&self) -> (usize, usize);

    /// The tokens of the longest example.
    fn widest(&self) -> usize;

    /// What tells these data from others.
    fn fingerprint(&self) -> PartFingerprint;
}

impl<E: TextExample> Ids for Vec<E> {
    type Example = E;

    fn batches(
        self,
        config: &Config,
        _: usize,
    ) -> Result<Box<dyn Batches<Example = E>>, TrainError> {
        Ok(Box::new(Bucketed::of(config, self)?))
    }

    fn examples(mut self, _: usize, most: Option<usize>) -> Self {
        self.truncate(most.unwrap_or(usize::MAX));
        self
    }

    fn shortest(&self) -> (usize, usize) {
        let tokens = self.iter().map(|example| {
            let extent = example.extent();
            extent.rows * extent.width
        });
        (self.len(), tokens.min().unwrap_or(0))
    }

    fn widest(&self) -> usize {
        let widths = self.iter().map(|example| example.extent().width);
        widths.max().unwrap_or(0)
    }

    fn fingerprint(&self) -> PartFingerprint {
        let [mut inputs, mut targets] = [Checksum::default(), Checksum::default()];
        for example in self {
            example.add_to(&mut inputs, &mut targets);
        }
        PartFingerprint::new(self.len(), inputs, targets)
    }
}

impl Ids for Vec<u32> {
    type Example = TextWindow;

    fn batches(
        self,
        config: &Config,
        context: usize,
    ) -> Result<Box<dyn Batches<Example = TextWindow>>, TrainError> {
        Ok(Box::new(Pieces::of(config, self, context)?))
    }

    fn examples(self, context: usize, most: Option<usize>) -> Vec<TextWindow> {
        let windows = Windows::new(context, 1, 0);
        let windows = windows.all(&self).take(most.unwrap_or(usize::MAX));
        windows.map(TextWindow::from).collect()
    }

    fn shortest(&self) -> (usize, usize) {
        (0, 0)
    }

    fn widest(&self) -> usize {
        0
    }

    fn fingerprint(&self) -> PartFingerprint {
        let mut inputs = Checksum::default();
        // In pieces: the bytes of all of it would take as much memory again.
        self.chunks(1 << 16).for_each(|ids| inputs.add(ids));
        PartFingerprint::new(self.len(), inputs, Checksum::default())
    }
}

/// Batches of about the same length, for what needs no gradients: indices of examples.
fn in_batches<E: Encoded>(examples: &[E]) -> Result<Vec<Vec<usize>>, TrainError> {
    if examples.is_empty() {
        return Ok(vec![]);
    }
    let extents = examples.iter().map(Encoded::extent).collect();
    // The order is by length: there is nothing to draw.
    let plan = Batching::new(BatchSize::Examples(ROWS), 0).plan(extents)?;
    Ok(plan.in_order())
}

/// Adds the loss of a batch.
fn add_loss<T: Task>(
    model: &T::Model,
    rows: &[&T::Example],
    device: &Device,
    loss: &mut Perplexity,
) -> Result<(), TrainError> {
    let mean = T::loss(model, rows, 0.0, device)
        .map_err(TrainError::model("validation"))?
        .into_scalar::<f32>();
    let predicted = rows.iter().map(|row| row.predicted()).sum();
    loss.add(f64::from(mean), predicted);
    Ok(())
}

/// That the model has positions for every example.
pub(crate) fn check_lengths<T: Task>(
    task: &T,
    part: DataPart,
    ids: &T::Ids,
) -> Result<(), TrainError> {
    let length = ids.widest();
    match task.longest().filter(|longest| length > *longest) {
        Some(longest) => Err(TrainError::TooLong {
            part: part.word(),
            length,
            longest,
        }),
        None => Ok(()),
    }
}

/// The error for data of another task: a config that was read has none.
fn other_data(config: &Config) -> TrainError {
    TrainError::Refused(format!(
        "a {} cannot be trained with data.kind = \"{}\"",
        config.model.word(),
        config.data.word()
    ))
}
