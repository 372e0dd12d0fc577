//! What can be wrong with a run, in words for the person who started it.

use std::path::PathBuf;

use thiserror::Error;
use zoo_backend::{BackendError, Dtype};
use zoo_config::ConfigError;
use zoo_data::DataError;
use zoo_metrics::MetricError;
use zoo_models::ModelError;
use zoo_models::weights::WeightsError;
use zoo_pictures::PictureError;

/// Why a run did not start, stopped, or cannot be used.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The config file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The device.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// What was measured.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// A picture.
    #[error(transparent)]
    Picture(#[from] PictureError),
    /// Weights.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// A model that cannot be made, or cannot take what it is given.
    #[error("{what}: {source}")]
    Model {
        /// What it is about: the config's section, or what was given.
        what: String,
        /// Why.
        source: ModelError,
    },
    /// Too long for the positions of the model.
    #[error(
        "{part} has an example of {length} tokens, and the model has {longest} places: raise \
         model.positions.longest, or shorten the data by data.max_length"
    )]
    TooLong {
        /// Which part of the data.
        part: &'static str,
        /// Tokens of the longest example.
        length: usize,
        /// Places there are.
        longest: usize,
    },
    /// There is a run of that name.
    #[error(
        "{} is there already: --resume goes on with it, --overwrite begins anew, and --set \
         run.name=OTHER leaves it alone",
        folder.display()
    )]
    RunExists {
        /// Its folder.
        folder: PathBuf,
    },
    /// Another process learns there.
    #[error(
        "{} is being trained by {}, and two would write over each other\n  do: wait for its end, \
         or stop it; --set run.name=OTHER begins a run beside it",
        folder.display(),
        of_process(.process)
    )]
    InUse {
        /// Its folder.
        folder: PathBuf,
        /// The process, where that is known.
        process: Option<u32>,
    },
    /// There is a folder of that name that is no run.
    #[error(
        "{} is no folder of a run (there is no {missing} in it), so it is not overwritten: choose \
         another run.name or run.output, or remove it yourself",
        folder.display()
    )]
    NotARun {
        /// The folder.
        folder: PathBuf,
        /// What a run would have.
        missing: &'static str,
    },
    /// There is no run to go on with, or to use.
    #[error(
        "{} is no folder of a run: there is no {missing} in it; `zoo train CONFIG` makes one",
        folder.display()
    )]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// What is not there.
        missing: &'static str,
    },
    /// A run is gone on with, with another config.
    #[error(
        "{} was made by another config, and going on would be no continuation; {key} differs:\n  \
         then: {then}\n  now:  {now}\nResume with what it was made by ({}), or begin a new run",
        folder.display(),
        folder.join("config.toml").display()
    )]
    OtherConfig {
        /// The run's folder.
        folder: PathBuf,
        /// The first key that differs.
        key: String,
        /// What it was.
        then: String,
        /// What it is.
        now: String,
    },
    /// There is nothing to go on from.
    #[error(
        "{} has no checkpoint yet: begin anew with --overwrite",
        folder.display()
    )]
    NoCheckpoint {
        /// The run's folder.
        folder: PathBuf,
    },
    /// There is no checkpoint of that step.
    #[error("{} has no checkpoint of step {step}; it has those of {there}", folder.display())]
    NoSuchCheckpoint {
        /// The run's folder.
        folder: PathBuf,
        /// The step that was asked for.
        step: usize,
        /// The steps there are.
        there: String,
    },
    /// A checkpoint is not as it was written.
    #[error("the checkpoint {} is damaged: {why}.{}", folder.display(), advice(.instead))]
    Damaged {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What can be taken in its place.
        instead: Option<Instead>,
    },
    /// A checkpoint could not be written.
    #[error(
        "the checkpoint of step {step} could not be written: {source}. {} Make room, then go on \
         with --resume",
        kept(.older)
    )]
    CheckpointNotWritten {
        /// Its step.
        step: usize,
        /// Why.
        source: Box<TrainError>,
        /// The step of the newest one there is.
        older: Option<usize>,
    },
    /// The loss is no number.
    #[error(
        "the loss is {loss} after step {step}: a smaller optimizer.learning_rate, a longer \
         schedule.warmup or optimizer.clipping helps. {}",
        kept(.older)
    )]
    NotANumber {
        /// What it is.
        loss: f64,
        /// When that was seen.
        step: usize,
        /// The step of the newest checkpoint.
        older: Option<usize>,
    },
    /// No loss scale is small enough.
    #[error(
        "gradients overflow at step {step} even with a loss scale of {scale}: compute in bf16 or \
         f32 (training.precision), or lower optimizer.learning_rate. {}",
        kept(.older)
    )]
    Overflow {
        /// When.
        step: usize,
        /// The scale.
        scale: f64,
        /// The step of the newest checkpoint.
        older: Option<usize>,
    },
    /// A device that cannot compute in what a pass should.
    #[error(
        "training.precision = \"{precision}\" is nothing that {device} computes in; it has {}",
        words(.supported)
    )]
    Precision {
        /// What was asked for.
        precision: Dtype,
        /// What computes.
        device: String,
        /// What it computes in.
        supported: Vec<Dtype>,
    },
    /// A config of another kind of model.
    #[error("{} is a {model}, which cannot {verb}; {instead}", folder.display())]
    WrongModel {
        /// The run's folder.
        folder: PathBuf,
        /// What it is.
        model: &'static str,
        /// What was asked of it.
        verb: &'static str,
        /// What can be asked.
        instead: &'static str,
    },
    /// Something else that was asked for and cannot be done.
    #[error("{0}")]
    Refused(String),
    /// A file.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        source: std::io::Error,
    },
    /// A file whose content is not what it should be.
    #[error("{} cannot be read: {why}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl TrainError {
    /// An error about a file, for `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// An error about a model, for `map_err`.
    pub(crate) fn model(what: impl Into<String>) -> impl FnOnce(ModelError) -> Self {
        let what = what.into();
        move |source| Self::Model { what, source }
    }

    /// An error about what is in a file, for `map_err`.
    pub(crate) fn content<E: std::fmt::Display>(
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |why| Self::Content {
            path,
            why: why.to_string(),
        }
    }
}

/// What is there in the place of a checkpoint that is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    /// The nearest step whose checkpoint is whole.
    pub whole: usize,
    /// How the command that failed takes it: each has a flag of its own.
    pub takes: String,
}

fn advice(instead: &Option<Instead>) -> String {
    match instead {
        Some(Instead { whole, takes }) => format!("\n  do: that of step {whole} is whole: {takes}"),
        None => "\n  do: there is no other that is whole: train anew with --overwrite".to_owned(),
    }
}

fn of_process(id: &Option<u32>) -> String {
    match id {
        Some(id) => format!("process {id}"),
        None => "another process".to_owned(),
    }
}

fn kept(older: &Option<usize>) -> String {
    match older {
        Some(step) => format!("The checkpoint of step {step} is kept."),
        None => "There is no checkpoint yet.".to_owned(),
    }
}

fn words(dtypes: &[Dtype]) -> String {
    let words: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
    words.join(", ")
}
