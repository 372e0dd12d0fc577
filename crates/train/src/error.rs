//! Errors of training and of using trained runs.

use std::path::PathBuf;

use thiserror::Error;
use zoo_backend::BackendError;
use zoo_config::ConfigError;
use zoo_data::DataError;
use zoo_data::metrics::MetricError;
use zoo_models::ModelError;
use zoo_viz::VizError;

pub(crate) type Result<T, E = TrainError> = std::result::Result<T, E>;

/// Why a run did not start, stopped, or cannot be used.
#[derive(Debug, Error)]
pub enum TrainError {
    /// Invalid config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Invalid data.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The backend cannot be used.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A metric cannot be computed.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// A plot cannot be created.
    #[error(transparent)]
    Picture(#[from] VizError),
    /// Weights cannot be read, written or applied.
    #[error(transparent)]
    Weights(#[from] ModelError),
    /// A model cannot be built, or rejects its input.
    #[error("{what}: {source}")]
    Model {
        /// The config section or the input that it is about.
        what: String,
        /// The model's error.
        source: Box<ModelError>,
    },
    /// There is no run in the folder.
    #[error(
        "no run at {} (no {missing})\n  help: {}",
        folder.display(),
        match closest {
            Some(closest) => format!("did you mean {}?", closest.display()),
            None => "`zoo train CONFIG` creates one".to_owned(),
        }
    )]
    NoRun {
        /// The folder.
        folder: PathBuf,
        /// The missing file.
        missing: &'static str,
        /// A run with a similar name.
        closest: Option<PathBuf>,
    },
    /// The run has no checkpoint.
    #[error(
        "{} has no checkpoint yet\n  help: if it is being trained, wait for the first one; if not, \
         start over with `zoo train CONFIG --overwrite`",
        folder.display()
    )]
    NoCheckpoint {
        /// The run folder.
        folder: PathBuf,
    },
    /// A checkpoint is damaged.
    #[error("the checkpoint {} is damaged: {reason}{}", folder.display(), help(.fallback))]
    Damaged {
        /// The checkpoint's folder.
        folder: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The nearest intact checkpoint.
        fallback: Option<Fallback>,
    },
    /// Any other error.
    #[error("{0}")]
    Refused(String),
    /// Standard output cannot be written.
    #[error(
        "standard output cannot be written: {0}\n  help: free disk space, or redirect it elsewhere"
    )]
    Output(std::io::Error),
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{} cannot be read: {reason}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl TrainError {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    pub(crate) fn model(what: impl Into<String>) -> impl FnOnce(ModelError) -> Self {
        let what = what.into();
        move |source| match source {
            // The text of a flag is the only row.
            ModelError::TooLong { length, max, .. } if what.starts_with("--") => Self::Refused(
                format!("{what} has {length} tokens; the model's context is {max}"),
            ),
            source => Self::Model {
                what,
                source: Box::new(source),
            },
        }
    }

    pub(crate) fn content<E: std::fmt::Display>(
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |error| Self::Content {
            path,
            reason: error.to_string(),
        }
    }
}

/// The intact checkpoint to use instead of a damaged one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// Step of the checkpoint.
    pub step: usize,
    /// How the failed command uses it: every command has its own flag.
    pub usage: String,
}

fn help(fallback: &Option<Fallback>) -> String {
    match fallback {
        Some(Fallback { step, usage }) => {
            format!("\n  help: the checkpoint of step {step} is intact: {usage}")
        }
        None => {
            "\n  help: no other checkpoint is intact: restore it from a backup, or train a new \
                 run with --name OTHER"
                .to_owned()
        }
    }
}
