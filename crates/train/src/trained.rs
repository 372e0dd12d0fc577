//! A run that was trained, opened to be used.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use burn::module::Module;
use burn::tensor::Device;
use zoo_backend::{BackendWord, Opened};
use zoo_config::{Config, Model, Override};
use zoo_models::weights::Weights;
use zoo_models::{Classifier, Gpt, Han, ModelError, Seq2Seq, Summary, Transformer};

use crate::memory::check_model;
use crate::run::RunFolder;
use crate::{Tokenizers, TrainError, models};

/// The file that averaged weights are written to.
pub const AVERAGE: &str = "average.safetensors";

/// A model of any kind.
#[derive(Debug, Clone)]
pub enum AnyModel {
    /// For pairs of texts.
    Transformer(Transformer),
    /// For pairs of texts, recurrent.
    Seq2Seq(Seq2Seq),
    /// For running text.
    Gpt(Gpt),
    /// For classes of texts.
    Classifier(Classifier),
    /// For classes of documents.
    Han(Han),
}

/// Does the same for a model of any kind.
#[macro_export]
macro_rules! with_model {
    ($any:expr, $model:ident => $body:expr) => {
        match $any {
            $crate::AnyModel::Transformer($model) => $body,
            $crate::AnyModel::Seq2Seq($model) => $body,
            $crate::AnyModel::Gpt($model) => $body,
            $crate::AnyModel::Classifier($model) => $body,
            $crate::AnyModel::Han($model) => $body,
        }
    };
}

impl AnyModel {
    /// The config's model for these vocabularies, with weights as they are drawn.
    ///
    /// # Errors
    ///
    /// [`TrainError::Model`] if there is no such model, [`TrainError::Config`] if the machine has
    /// not the memory for it.
    pub fn build(
        config: &Config,
        tokenizers: &Tokenizers,
        device: &Device,
    ) -> Result<Self, TrainError> {
        check_model(config, tokenizers)?;
        let (vocabulary, target) = tokenizers.sizes();
        let target = target.unwrap_or(vocabulary);
        let classes = match tokenizers {
            Tokenizers::Labelled(_, labels) => labels.names().len(),
            Tokenizers::Pair(_) | Tokenizers::Plain(_) => 0,
        };
        let made: Result<Self, ModelError> = match &config.model {
            Model::Transformer(said) => models::transformer(said, vocabulary, target)
                .try_init(device)
                .map(Self::Transformer),
            Model::Seq2Seq(said) => models::seq2seq(said, vocabulary, target)
                .try_init(device)
                .map(Self::Seq2Seq),
            Model::Gpt(said) => models::gpt(said, vocabulary)
                .try_init(device)
                .map(Self::Gpt),
            Model::Classifier(said) => models::classifier(said, vocabulary, classes)
                .try_init(device)
                .map(Self::Classifier),
            Model::Han(said) => models::han(said, vocabulary, classes)
                .try_init(device)
                .map(Self::Han),
        };
        made.map_err(TrainError::model("[model]"))
    }

    /// The model with these weights.
    ///
    /// # Errors
    ///
    /// [`TrainError::Weights`] if they are not this model's.
    pub fn with_weights(self, weights: Weights) -> Result<Self, TrainError> {
        Ok(match self {
            Self::Transformer(model) => Self::Transformer(weights.apply(model)?),
            Self::Seq2Seq(model) => Self::Seq2Seq(weights.apply(model)?),
            Self::Gpt(model) => Self::Gpt(weights.apply(model)?),
            Self::Classifier(model) => Self::Classifier(weights.apply(model)?),
            Self::Han(model) => Self::Han(weights.apply(model)?),
        })
    }

    /// What it is made of.
    pub fn summary(&self) -> Summary {
        with_model!(self, model => model.summary())
    }

    /// How many numbers it has learned.
    pub fn parameters(&self) -> usize {
        with_model!(self, model => model.num_params())
    }
}

/// Which weights of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Which {
    /// Those that were best in validation; the last, where none was validated.
    #[default]
    Best,
    /// The last.
    Last,
    /// What `zoo average` made.
    Average,
    /// Those of a step.
    Step(usize),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            "average" => Ok(Self::Average),
            step => step.parse().map(Self::Step).map_err(|_| {
                format!("expected best, last, average or the number of a step, got {word:?}")
            }),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => write!(f, "best"),
            Self::Last => write!(f, "last"),
            Self::Average => write!(f, "average"),
            Self::Step(step) => write!(f, "{step}"),
        }
    }
}

/// A run that was trained, ready to be used.
#[derive(Debug)]
pub struct Trained {
    /// Its folder.
    pub folder: RunFolder,
    /// What it was made by.
    pub config: Config,
    /// What makes tokens of texts.
    pub tokenizers: Tokenizers,
    /// The model, on a device that takes no gradients.
    pub model: AnyModel,
    /// What computes.
    pub opened: Opened,
    /// The step of the weights; none for those that were averaged.
    pub step: Option<usize>,
}

impl Trained {
    /// Opens a run: its weights on the backend it was trained on, or on another one.
    ///
    /// # Errors
    ///
    /// [`TrainError`] if there is no such run or checkpoint, or the backend cannot be opened.
    pub fn open(
        folder: &Path,
        which: Which,
        backend: Option<BackendWord>,
        overrides: &[Override],
    ) -> Result<Self, TrainError> {
        let folder = RunFolder::existing(folder)?;
        let config = folder.config_with(overrides)?;
        let tokenizers = Tokenizers::load(&config, folder.path())?;
        let (weights, step) = weights_of(&folder, which)?;
        let word = backend.unwrap_or(config.backend.word);
        let opened = zoo_backend::open(word, config.backend.dtype)?;
        let model = AnyModel::build(&config, &tokenizers, &opened.device)?;
        Ok(Self {
            model: model.with_weights(weights)?,
            folder,
            config,
            tokenizers,
            opened,
            step,
        })
    }
}

/// Weights of a run, and their step.
pub(crate) fn weights_of(
    folder: &RunFolder,
    which: Which,
) -> Result<(Weights, Option<usize>), TrainError> {
    let checkpoints = folder.checkpoints();
    let last = || {
        checkpoints
            .steps()?
            .last()
            .copied()
            .ok_or_else(|| TrainError::NoCheckpoint {
                folder: folder.path().into(),
            })
    };
    let step = match which {
        Which::Average => {
            let path = folder.file(AVERAGE);
            if !path.is_file() {
                return Err(TrainError::Refused(format!(
                    "{} has no averaged weights: `zoo average {}` makes them",
                    folder.path().display(),
                    folder.path().display()
                )));
            }
            return Ok((Weights::read(path)?, None));
        }
        Which::Step(step) => step,
        Which::Last => last()?,
        Which::Best => match checkpoints.best()? {
            Some(best) => best.step,
            None => last()?,
        },
    };
    Ok((checkpoints.read(step)?.weights, Some(step)))
}
