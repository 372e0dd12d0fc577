//! A run that was trained, opened to be used.

use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

use burn::tensor::Device;
use zoo_backend::{BackendWord, Opened};
use zoo_config::{Config, Override};
use zoo_data::Parts;
use zoo_models::weights::Weights;

use crate::attend::Seen;
use crate::evaluate::{DataPart, Evaluated, Judge, Source};
use crate::memory::check_model;
use crate::run::RunFolder;
use crate::task::{
    Classified, Classifies, Ids, LanguageModelling, Note, Section, Task, TaskModel, Texts,
    Translates, check_lengths, evaluate_examples, read_texts, with_task,
};
use crate::{Result, TrainError};

/// The file that averaged weights are written to.
pub(crate) const AVERAGE: &str = "average.safetensors";

/// Which weights of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that were best in validation; the last, where none was validated.
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
    ) -> Result<Self> {
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
    pub(crate) fn cannot(&self, verb: &str) -> TrainError {
        TrainError::Refused(format!(
            "{} is a {}, which cannot {verb}; {}",
            self.folder.path().display(),
            self.config.model.word(),
            self.model.usage()
        ))
    }

    pub(crate) fn translator(&self) -> Result<&dyn Translates> {
        let translator = self.model.translator();
        translator.ok_or_else(|| self.cannot("translate"))
    }

    pub(crate) fn classifier(&self) -> Result<&dyn Classifies> {
        let classifier = self.model.classifier();
        classifier.ok_or_else(|| self.cannot("classify"))
    }

    /// The classes of texts, in their order. Texts are shortened as those that were learned from,
    /// and `note` takes a line about it.
    ///
    /// # Errors
    ///
    /// [`TrainError::Refused`] if the model tells no classes, [`TrainError::Model`] if a text is
    /// too long for it.
    pub fn classify(&self, texts: &[&str], note: &mut dyn FnMut(&str)) -> Result<Vec<Classified>> {
        self.classifier()?.classify(self, texts, note)
    }
}

/// The model of a run's config, with these weights, or with initial ones.
pub(crate) fn load(
    config: &Config,
    folder: &RunFolder,
    device: &Device,
    weights: Option<Weights>,
) -> Result<Box<dyn AnyTrained>> {
    fn load_task<T: Task>(
        config: &Config,
        section: &Section<T>,
        folder: &RunFolder,
        device: &Device,
        weights: Option<Weights>,
    ) -> Result<Box<dyn AnyTrained>> {
        let task = T::load(folder.path())?;
        let mut model = build(config, section, &task, device)?;
        if let Some(weights) = weights {
            model = weights.apply(model)?;
        }
        Ok(Box::new(TrainedTask { task, model }))
    }
    with_task!(config, |T, section| load_task::<T>(
        config, section, folder, device, weights
    ))
}

/// The model of a task, with initial weights.
pub(crate) fn build<T: Task>(
    config: &Config,
    section: &Section<T>,
    task: &T,
    device: &Device,
) -> Result<T::Model> {
    check_model(config, task)?;
    let model = task.model(section, device);
    model.map_err(TrainError::model("[model]"))
}

/// A task, and a model that has learned it.
#[derive(Debug)]
pub(crate) struct TrainedTask<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
}

/// The same of any task: what commands ask of it.
pub(crate) trait AnyTrained: Debug {
    /// What the model is made of, after a line with its name and sizes.
    fn summary(&self) -> String;

    fn usage(&self) -> &'static str;

    fn evaluate(
        &self,
        trained: &Trained,
        source: &Source,
        judge: &Judge,
        note: Note<'_>,
    ) -> Result<Evaluated>;

    fn look(&self, trained: &Trained, text: &str, target: Option<&str>) -> Result<Seen>;

    fn translator(&self) -> Option<&dyn Translates>;

    fn classifier(&self) -> Option<&dyn Classifies>;

    fn generator(&self) -> Option<&TrainedTask<LanguageModelling>>;
}

impl<T: Task> AnyTrained for TrainedTask<T> {
    fn summary(&self) -> String {
        self.model.to_string()
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
    ) -> Result<Evaluated> {
        let Self { task, model } = self;
        let config = &trained.config;
        let (texts, part, name) = match source {
            Source::Own(part) => {
                let parts: Parts<T::Texts> = read_texts(config, note)?;
                let part = part.unwrap_or(match parts.test.size() {
                    0 => DataPart::Valid,
                    _ => DataPart::Test,
                });
                let texts = match part {
                    DataPart::Train => parts.train,
                    DataPart::Valid => parts.valid,
                    DataPart::Test => parts.test,
                };
                (texts, part, format!("{} data", part.word()))
            }
            Source::Parallel(path, _) | Source::Labelled(path) | Source::Plain(path) => {
                let texts = T::Texts::read_files(config, source, note)?.ok_or_else(|| {
                    TrainError::Refused(format!(
                        "a {} cannot be judged by such texts: it takes {}",
                        config.model.word(),
                        T::Texts::FILES
                    ))
                })?;
                (texts, DataPart::Test, path.display().to_string())
            }
        };
        let size = texts.size();
        if size == 0 {
            return Err(TrainError::Refused(format!(
                "the {} data has no examples: choose another --part, or give texts of your own",
                part.word()
            )));
        }
        let ids = task.encode(config, part, &texts, note)?;
        check_lengths::<T>(model, part, &ids)?;
        let examples = ids.examples(model.context(), None);
        let judgement = evaluate_examples(task, model, &examples, &texts, judge)?;
        Ok(Evaluated {
            judgement,
            name,
            size,
        })
    }

    fn look(&self, trained: &Trained, text: &str, target: Option<&str>) -> Result<Seen> {
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
pub(crate) fn weights_of(folder: &RunFolder, which: Which) -> Result<(Weights, Option<usize>)> {
    let checkpoints = folder.checkpoints();
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
        Which::Last => checkpoints.last()?,
        Which::Best => match checkpoints.best()? {
            Some(best) => best.step,
            None => checkpoints.last()?,
        },
    };
    Ok((checkpoints.read(step)?.weights, Some(step)))
}
