//! What can be wrong with a run, in words for the person who started it.

use std::path::PathBuf;

use thiserror::Error;
use zoo_backend::{BackendError, Dtype};
use zoo_config::ConfigError;
use zoo_data::DataError;
use zoo_data::metrics::MetricError;
use zoo_models::ModelError;
use zoo_models::weights::WeightsError;
use zoo_viz::PictureError;

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
        "{} is there already\n  do: {}",
        folder.display(),
        choices(*.is_removable)
    )]
    RunExists {
        /// Its folder.
        folder: PathBuf,
        /// Whether there is nothing in it that `--overwrite` would refuse to remove.
        is_removable: bool,
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
    /// A lock cannot be taken, though the filesystem has locks.
    #[error(
        "{} cannot be locked: {source}\n  do: check the disk and the permissions of the file; \
         --set run.output=FOLDER trains on another disk",
        file.display()
    )]
    NotLocked {
        /// The file.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A folder that would be removed has something in it that zoo did not write.
    #[error(
        "{} was not written by zoo, so {} is not removed\n  do: move it elsewhere first, or begin \
         a run beside it with --set run.name=OTHER",
        file.display(),
        folder.display()
    )]
    ForeignFile {
        /// The folder that would be removed.
        folder: PathBuf,
        /// What is in it.
        file: PathBuf,
    },
    /// A folder that would be removed has something in it that the config reads.
    #[error(
        "{key} is {}, in the run folder {} itself, which is therefore not overwritten\n  do: copy \
         it elsewhere and name that file, or begin a run beside it with --set run.name=OTHER",
        file.display(),
        folder.display()
    )]
    FileOfConfig {
        /// The folder that would be removed.
        folder: PathBuf,
        /// The key of the config.
        key: &'static str,
        /// What it names.
        file: PathBuf,
    },
    /// There is a folder of that name that is no run.
    #[error(
        "{} was not created by zoo (there is no {missing} of a run in it), so it is not \
         overwritten\n  do: choose another run.name or run.output, or move it elsewhere",
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
    /// A run is resumed with other data.
    #[error(
        "{} was trained with other data: {source_of_data} has changed since the checkpoint of step \
         {step}: {what}\n  do: restore it, or begin a new run; --accept-changed-data resumes with it \
         as it is now",
        folder.display()
    )]
    OtherData {
        /// The run's folder.
        folder: PathBuf,
        /// The checkpoint's step.
        step: usize,
        /// The key of the config, and its file.
        source_of_data: String,
        /// What differs.
        what: String,
    },
    /// There is nothing to go on from.
    #[error(
        "{} has no checkpoint yet\n  do: wait for the first one if it is being trained; if not, \
         `zoo train CONFIG --overwrite` begins anew",
        folder.display()
    )]
    NoCheckpoint {
        /// The run's folder.
        folder: PathBuf,
    },
    /// There is a folder of checkpoints, and it cannot be read.
    #[error(
        "{} cannot be read: {source}\n  do: check its permissions, and whether its disk is \
         mounted and without errors, then try again; do not begin anew: there may be checkpoints \
         in it",
        folder.display()
    )]
    Unreadable {
        /// The folder of checkpoints.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
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
        "the checkpoint of step {step} could not be written: {source}. {} Make room, then {}",
        kept(.older),
        match older {
            Some(_) => "go on with --resume",
            None => "begin anew with --overwrite",
        }
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
    #[error("the loss is {loss} after step {step}.{}", diverged(.usable))]
    NotANumber {
        /// What it is.
        loss: f64,
        /// When that was seen.
        step: usize,
        /// The step of the newest checkpoint that can be used.
        usable: Option<usize>,
    },
    /// Weights are NaN or infinite: no checkpoint is written of them.
    #[error(
        "the weights are no longer finite after step {step} ({tensor}), and were not saved.{}",
        diverged(.usable)
    )]
    NonFiniteWeights {
        /// When that was seen.
        step: usize,
        /// A tensor with NaN or infinity.
        tensor: String,
        /// The step of the newest checkpoint that can be used.
        usable: Option<usize>,
    },
    /// No loss scale is small enough.
    #[error(
        "gradients overflow at step {step} even with a loss scale of {scale}: compute in bf16 or \
         f32 (training.precision).{}",
        diverged(.usable)
    )]
    Overflow {
        /// When.
        step: usize,
        /// The scale.
        scale: f64,
        /// The step of the newest checkpoint that can be used.
        usable: Option<usize>,
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
    /// Standard output.
    #[error(
        "standard output cannot be written: {0}\n  do: make room where it goes, or send it \
         elsewhere"
    )]
    Output(std::io::Error),
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
        None => {
            "\n  do: there is no other that is whole: restore it from a backup, or train a new \
                 run with --set run.name=OTHER"
                .to_owned()
        }
    }
}

fn choices(is_removable: bool) -> String {
    let overwrite = match is_removable {
        true => "--overwrite deletes it and begins anew, ",
        false => "",
    };
    format!("--resume goes on with it, {overwrite}--set run.name=OTHER begins a run beside it")
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

/// What to do when a run has diverged.
fn diverged(usable: &Option<usize>) -> String {
    let usable = match usable {
        Some(step) => format!(
            "the checkpoint of step {step} can be used: --checkpoint {step} evaluates it, --resume \
             --step {step} goes on from it"
        ),
        None => "there is no checkpoint that can be used".to_owned(),
    };
    format!(
        "\n  do: begin a run with a smaller optimizer.learning_rate, a longer schedule.warmup or \
         optimizer.clipping; {usable}"
    )
}

fn words(dtypes: &[Dtype]) -> String {
    let words: Vec<String> = dtypes.iter().map(ToString::to_string).collect();
    words.join(", ")
}
