//! A trained run, loaded for inference and evaluation.

use std::fmt::Debug;
use std::path::Path;
use std::str::FromStr;

use burn::tensor::Device;
use zoo_backend::{BackendId, OpenDevice};
use zoo_config::{Config, Override};
use zoo_data::{Splits, Tokenizer};
use zoo_models::weights::Weights;
use zoo_viz::units::count;

use crate::attend::{AttentionRequest, AttentionView};
use crate::evaluate::{DataSplit, EvalSet, Evaluation, Evaluator};
use crate::memory::check_model;
use crate::pretrained::{Pretrained, is_model_folder};
use crate::run::RunFolder;
use crate::task::{
    ClassPrediction, ExampleText, Inference, LanguageModelling, Note, Section, Task, TaskModel,
    TextClassifier, Texts, TokenData, Translator, check_lengths, evaluate_examples, read_texts,
    with_task,
};
use crate::unknown::UnknownNotes;
use crate::{Result, TrainError};

pub(crate) const AVERAGE: &str = "average.safetensors";

/// The weights of a run to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointChoice {
    /// The best checkpoint in validation; the last one without validation.
    Best,
    /// The last checkpoint.
    Last,
    /// The output of `zoo average`.
    Average,
    /// The checkpoint of a step.
    Step(usize),
}

impl FromStr for CheckpointChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Self::Best),
            "last" => Ok(Self::Last),
            "average" => Ok(Self::Average),
            step => step
                .parse()
                .map(Self::Step)
                .map_err(|_| format!("expected best, last, average or a step, got {text:?}")),
        }
    }
}

/// A trained run, loaded for inference and evaluation.
#[derive(Debug)]
pub struct TrainedRun {
    /// The run folder.
    pub folder: RunFolder,
    /// The config of the run.
    pub config: Config,
    pub(crate) model: Box<dyn AnyTrainedTask>,
    /// The backend and device.
    pub opened: OpenDevice,
    /// The step of the weights; None for averaged or pretrained weights.
    pub step: Option<usize>,
    pub(crate) pretrained: Option<Pretrained>,
}

impl TrainedRun {
    /// Loads a run, by default on the backend it was trained on, or a folder of pretrained weights as
    /// saved by transformers: see [`hugging_face`](zoo_models::weights::hugging_face).
    pub fn open(
        folder: &Path,
        choice: CheckpointChoice,
        backend: Option<BackendId>,
        overrides: &[Override],
    ) -> Result<Self> {
        if is_model_folder(folder) {
            return Self::open_model_folder(folder, choice, backend, overrides);
        }
        let folder = RunFolder::open(folder)?;
        let config = folder.config_with(overrides)?;
        let (weights, step) = load_weights(&folder, choice)?;
        let backend = backend.unwrap_or(config.backend.name);
        let opened = zoo_backend::open(backend, config.backend.dtype)?;
        Ok(Self {
            model: load(&config, &folder, &opened.device, Some(weights))?,
            folder,
            config,
            opened,
            step,
            pretrained: None,
        })
    }

    pub(crate) fn translator(&self) -> Result<&dyn Translator> {
        match self.model.inference() {
            Inference::Translate(translator) => Ok(translator),
            other => Err(self.wrong_model("translate", &other)),
        }
    }

    pub(crate) fn classifier(&self) -> Result<&dyn TextClassifier> {
        match self.model.inference() {
            Inference::Classify(classifier) => Ok(classifier),
            other => Err(self.wrong_model("classify", &other)),
        }
    }

    pub(crate) fn generator(&self) -> Result<&TrainedTask<LanguageModelling>> {
        match self.model.inference() {
            Inference::Generate(generator) => Ok(generator),
            other => Err(self.wrong_model("generate", &other)),
        }
    }

    fn wrong_model(&self, command: &str, inference: &Inference<'_>) -> TrainError {
        TrainError::Refused(format!(
            "{} is a {}, which does not support `zoo {command}`\n  help: use `zoo {}`",
            self.folder.path().display(),
            self.config.model.name(),
            inference.command()
        ))
    }

    /// Classifies texts. They are truncated like the training data, which is reported to `note`.
    pub fn classify(
        &self,
        texts: &[&str],
        note: &mut dyn FnMut(&str),
    ) -> Result<Vec<ClassPrediction>> {
        self.classifier()?.classify(self, texts, note)
    }
}

/// The model of a run, with these weights or with initial ones.
pub(crate) fn load(
    config: &Config,
    folder: &RunFolder,
    device: &Device,
    weights: Option<Weights>,
) -> Result<Box<dyn AnyTrainedTask>> {
    fn load_task<T: Task>(
        config: &Config,
        section: &Section<T>,
        folder: &RunFolder,
        device: &Device,
        weights: Option<Weights>,
    ) -> Result<Box<dyn AnyTrainedTask>> {
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

#[derive(Debug)]
pub(crate) struct TrainedTask<T: Task> {
    pub(crate) task: T,
    pub(crate) model: T::Model,
}

pub(crate) trait AnyTrainedTask: Debug {
    fn summary(&self) -> String;

    /// See [`Task::tokenizers`].
    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>);

    fn evaluate(
        &self,
        trained: &TrainedRun,
        eval_set: &EvalSet,
        evaluator: &Evaluator,
        note: Note<'_>,
    ) -> Result<Evaluation>;

    /// An example of the test split, counted from 1, or of the validation split if there is no test
    /// split.
    fn example(&self, config: &Config, number: usize, note: Note<'_>) -> Result<ExampleText>;

    fn attention_view(
        &self,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView>;

    fn inference(&self) -> Inference<'_>;
}

impl<T: Task> AnyTrainedTask for TrainedTask<T> {
    fn summary(&self) -> String {
        self.model.to_string()
    }

    fn tokenizers(&self) -> (&Tokenizer, Option<&Tokenizer>) {
        self.task.tokenizers()
    }

    fn evaluate(
        &self,
        trained: &TrainedRun,
        eval_set: &EvalSet,
        evaluator: &Evaluator,
        note: Note<'_>,
    ) -> Result<Evaluation> {
        let Self { task, model } = self;
        let config = &trained.config;
        let (texts, split, name) = match eval_set {
            EvalSet::Own(split) => {
                let (texts, split) = own_split::<T>(config, *split, note)?;
                (texts, split, format!("{} data", split.name()))
            }
            EvalSet::Parallel(path, _) | EvalSet::Labelled(path) | EvalSet::Plain(path) => {
                let texts = T::Texts::read_files(config, eval_set, note)?.ok_or_else(|| {
                    TrainError::Refused(format!(
                        "a {} cannot be evaluated on this data\n  help: use {}",
                        config.model.name(),
                        T::Texts::FILES
                    ))
                })?;
                let (tokenizer, _) = task.tokenizers();
                UnknownNotes::default().report(tokenizer, &texts.inputs(), note)?;
                (texts, DataSplit::Test, path.display().to_string())
            }
        };
        let size = texts.size();
        if size == 0 {
            return Err(TrainError::Refused(format!(
                "the {} data has no examples\n  help: choose another --split, or give other files",
                split.name()
            )));
        }
        let ids = task.encode(config, split, &texts, note)?;
        check_lengths::<T>(model, split, &ids)?;
        let examples = ids.examples(model.context(), None);
        let metrics = evaluate_examples(task, model, &examples, &texts, evaluator)?;
        Ok(Evaluation {
            metrics,
            name,
            size,
        })
    }

    fn example(&self, config: &Config, number: usize, note: Note<'_>) -> Result<ExampleText> {
        let (texts, split) = own_split::<T>(config, None, note)?;
        let context = self.model.context();
        let index = number.checked_sub(1);
        let example = index.and_then(|index| texts.example(index, context));
        example.ok_or_else(|| {
            let size = match context {
                0 => texts.size(),
                // Windows of running text.
                context => texts.size().div_ceil(context),
            };
            let (name, size) = (split.name(), count(size));
            TrainError::Refused(format!(
                "the {name} data has {size} examples; --example must be from 1 to {size}"
            ))
        })
    }

    fn attention_view(
        &self,
        trained: &TrainedRun,
        request: &AttentionRequest<'_>,
    ) -> Result<AttentionView> {
        self.task.attention_view(&self.model, trained, request)
    }

    fn inference(&self) -> Inference<'_> {
        T::inference(self)
    }
}

/// A split of the run's own data, by default test, or valid if there is no test split.
fn own_split<T: Task>(
    config: &Config,
    split: Option<DataSplit>,
    note: Note<'_>,
) -> Result<(T::Texts, DataSplit)> {
    let splits: Splits<T::Texts> = read_texts(config, note)?;
    let split = split.unwrap_or(match splits.test.size() {
        0 => DataSplit::Valid,
        _ => DataSplit::Test,
    });
    let texts = match split {
        DataSplit::Train => splits.train,
        DataSplit::Valid => splits.valid,
        DataSplit::Test => splits.test,
    };
    Ok((texts, split))
}

pub(crate) fn load_weights(
    folder: &RunFolder,
    choice: CheckpointChoice,
) -> Result<(Weights, Option<usize>)> {
    let checkpoints = folder.checkpoints();
    let step = match choice {
        CheckpointChoice::Average => {
            let path = folder.file(AVERAGE);
            if !path.is_file() {
                return Err(TrainError::Refused(format!(
                    "{folder} has no averaged weights\n  help: run `zoo average {folder}`",
                    folder = folder.path().display()
                )));
            }
            return Ok((Weights::read(path)?, None));
        }
        CheckpointChoice::Step(step) => step,
        CheckpointChoice::Last => checkpoints.last()?,
        CheckpointChoice::Best => match checkpoints.best()? {
            Some(best) => best.step,
            None => checkpoints.last()?,
        },
    };
    Ok((checkpoints.read(step)?.weights, Some(step)))
}
