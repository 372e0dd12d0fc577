//! What can be wrong with a run, in words for the person who started it.

use std::path::PathBuf;

use thiserror::Error;
use zoo_backend::BackendError;
use zoo_config::ConfigError;
use zoo_data::DataError;
use zoo_data::metrics::MetricError;
use zoo_models::ModelError;
use zoo_models::weights::WeightsError;
use zoo_viz::PictureError;

pub(crate) type Result<T, E = TrainError> = std::result::Result<T, E>;

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
    /// Anything else that was asked for and cannot be done, or went wrong.
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
