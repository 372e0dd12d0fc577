//! A run that was trained, opened to be used.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use burn::tensor::Device;
use zoo_backend::{BackendWord, Opened};
use zoo_config::{Config, Override};
use zoo_models::Summary;
use zoo_models::weights::Weights;

use crate::TrainError;
use crate::attend::Seen;
use crate::evaluate::{Evaluated, Source, evaluate};
use crate::judge::Judge;
use crate::memory::check_model;
use crate::run::RunFolder;
use crate::task::{
    Classifies, LanguageModelling, Note, Section, Task, TaskModel, Translates, with_task,
};

/// The file that averaged weights are written to.
pub const AVERAGE: &str = "average.safetensors";

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
    /// The model and its task, on a device that takes no gradients.
    pub(crate) model: Box<dyn AnyTrained>,
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
        let (weights, step) = weights_of(&folder, which)?;
        let word = backend.unwrap_or(config.backend.word);
        let opened = zoo_backend::open(word, config.backend.dtype)?;
        Ok(Self {
            model: load(&config, &folder, &opened.device, Some(weights))?,
            folder,
            config,
            opened,
            step,
        })
    }

    /// What to say to somebody who asks for what the model is not for.
    pub(crate) fn cannot(&self, verb: &'static str) -> TrainError {
        TrainError::WrongModel {
            folder: self.folder.path().into(),
            model: self.config.model.word(),
            verb,
            instead: self.model.usage(),
        }
    }

    /// The model that writes texts for texts.
    ///
    /// # Errors
    ///
    /// [`TrainError::WrongModel`] if it writes none.
    pub fn translator(&self) -> Result<&dyn Translates, TrainError> {
        let translator = self.model.translator();
        translator.ok_or_else(|| self.cannot("translate"))
    }

    /// The model that tells classes.
    ///
    /// # Errors
    ///
    /// [`TrainError::WrongModel`] if it tells none.
    pub fn classifier(&self) -> Result<&dyn Classifies, TrainError> {
        let classifier = self.model.classifier();
        classifier.ok_or_else(|| self.cannot("classify"))
    }
}

/// The model of a run's config, with these weights, or as it is drawn.
///
/// # Errors
///
/// [`TrainError::Model`] if there is no such model, [`TrainError::Config`] if the machine has not
/// the memory for it, [`TrainError::Weights`] if the weights are not this model's.
pub(crate) fn load(
    config: &Config,
    folder: &RunFolder,
    device: &Device,
    weights: Option<Weights>,
) -> Result<Box<dyn AnyTrained>, TrainError> {
    fn load_task<T: Task>(
        config: &Config,
        section: &Section<T>,
        folder: &RunFolder,
        device: &Device,
        weights: Option<Weights>,
    ) -> Result<Box<dyn AnyTrained>, TrainError> {
        let task = T::load(section, folder.path())?;
        let mut model = build(config, &task, device)?;
        if let Some(weights) = weights {
            model = weights.apply(model)?;
        }
        Ok(Box::new(TrainedTask { task, model }))
    }
    with_task!(config, |T, section| load_task::<T>(
        config, section, folder, device, weights
    ))
}

/// The model of a task, with weights as they are drawn.
pub(crate) fn build<T: Task>(
    config: &Config,
    task: &T,
    device: &Device,
) -> Result<T::Model, TrainError> {
    check_model(config, task)?;
    task.model(device).map_err(TrainError::model("[model]"))
}

/// A task, and a model that has learned it.
#[derive(Debug)]
pub struct TrainedTask<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
}

/// The same of any task: what commands ask of it.
pub(crate) trait AnyTrained: fmt::Debug {
    fn summary(&self) -> Summary;

    /// The command that uses it.
    fn usage(&self) -> &'static str;

    fn evaluate(
        &self,
        trained: &Trained,
        source: &Source,
        judge: &Judge,
        note: Note<'_>,
    ) -> Result<Evaluated, TrainError>;

    fn look(&self, trained: &Trained, text: &str, target: Option<&str>)
    -> Result<Seen, TrainError>;

    fn translator(&self) -> Option<&dyn Translates>;

    fn classifier(&self) -> Option<&dyn Classifies>;

    fn generator(&self) -> Option<&TrainedTask<LanguageModelling>>;
}

impl<T: Task> AnyTrained for TrainedTask<T> {
    fn summary(&self) -> Summary {
        self.model.summary()
    }

    fn usage(&self) -> &'static str {
        T::USAGE
    }

    fn evaluate(
        &self,
        trained: &Trained,
        source: &Source,
        judge: &Judge,
        note: Note<'_>,
    ) -> Result<Evaluated, TrainError> {
        evaluate(self, trained, source, judge, note)
    }

    fn look(
        &self,
        trained: &Trained,
        text: &str,
        target: Option<&str>,
    ) -> Result<Seen, TrainError> {
        self.task.look(&self.model, trained, text, target)
    }

    fn translator(&self) -> Option<&dyn Translates> {
        T::translator(self)
    }

    fn classifier(&self) -> Option<&dyn Classifies> {
        T::classifier(self)
    }

    fn generator(&self) -> Option<&TrainedTask<LanguageModelling>> {
        T::generator(self)
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
