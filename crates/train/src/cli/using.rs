//! Which run is used, and how: the arguments that these commands have in common.

use std::path::PathBuf;

use clap::Args;
use zoo_backend::BackendWord;
use zoo_config::Override;

use crate::{TrainError, Trained, Which};

/// Which run is used, and how.
#[derive(Debug, Args)]
pub struct Using {
    /// The folder of the run, such as runs/transformer-reverse
    #[arg(value_name = "RUN")]
    pub run: PathBuf,

    /// Which weights: best, last, average, or the number of a step
    #[arg(long, value_name = "WHICH", default_value = "best")]
    pub checkpoint: Which,

    /// The backend, instead of the one that the run was trained on
    #[arg(long, value_name = "WORD")]
    pub backend: Option<BackendWord>,

    /// Changes a key of the run's config: --set decoding.max_length=64
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl Using {
    /// Opens the run.
    ///
    /// # Errors
    ///
    /// Those of [`Trained::open`].
    pub fn open(&self) -> Result<Trained, TrainError> {
        let overrides = self.set.iter().map(|text| Override::set(text));
        let overrides: Vec<Override> = overrides.collect::<Result<_, _>>()?;
        Trained::open(&self.run, self.checkpoint, self.backend, &overrides)
    }
}

impl Trained {
    /// The run, its weights and what computes, in a line.
    pub(crate) fn described(&self) -> String {
        let step = match self.step {
            Some(step) => format!("step {step}"),
            None => "averaged weights".to_owned(),
        };
        format!("{}, {step}, {}", self.folder.path().display(), self.opened)
    }
}
