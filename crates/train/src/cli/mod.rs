//! The commands of the `zoo` program.

mod arguments;
pub mod attend;
pub mod average;
pub mod classify;
mod decoding;
pub mod eval;
pub mod generate;
mod input;
pub mod inspect;
pub mod new;
mod signals;
pub mod train;
pub mod translate;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use zoo_config::Override;
use zoo_spec::{BackendWord, printable_text};

pub use crate::out::print_error_line;
use crate::{Result, TrainError, Trained, Which};

/// A command of the program that writes to something.
pub trait Command: Args {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// [`TrainError`], in words for the person who called it.
    fn run(self, out: &mut dyn Write) -> Result<()>;
}

/// Writes text where people and other programs read it, at once.
fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    // What a model writes goes to other programs as it is, and to a terminal without what that
    // would act on.
    let text = match std::io::stdout().is_terminal() {
        true => printable_text(text),
        false => text.into(),
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(TrainError::Output)
}

/// Whether an error is that nobody reads any more: `zoo translate ... | head`.
pub fn is_closed_pipe(error: &TrainError) -> bool {
    matches!(error, TrainError::Output(source) if source.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Which run is used, and how.
#[derive(Debug, Args)]
struct Using {
    /// The folder of the run, such as runs/transformer-reverse
    #[arg(value_name = "RUN")]
    run: PathBuf,

    /// Which weights: best, last, average, or the number of a step
    #[arg(long, value_name = "WHICH", default_value = "best")]
    checkpoint: Which,

    /// The backend, instead of the one that the run was trained on
    #[arg(long, value_name = "WORD")]
    backend: Option<BackendWord>,

    /// Changes a key of the run's config: --set decoding.max_length=64
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl Using {
    fn open(&self) -> Result<Trained> {
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
