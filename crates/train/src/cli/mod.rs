//! The commands of the `zoo` program.

mod arguments;
pub mod attend;
pub mod average;
pub mod classify;
pub mod completions;
pub(crate) mod decoding;
pub mod eval;
pub mod generate;
mod input;
pub mod inspect;
pub mod mechanisms;
pub mod new;
mod prompt;
pub mod runs;
pub mod serve;
mod signals;
mod sweep;
mod terminal;
pub mod train;
pub mod translate;
mod variants;

use std::convert::Infallible;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use zoo_config::Override;
use zoo_spec::{Backend, BackendId, printable_text};

use self::arguments::with_names;
pub use crate::out::print_error;
use crate::out::print_error_line;
use crate::{CheckpointChoice, Result, TrainError, TrainedRun};

/// A command of the program that writes its output to `out`.
pub trait Command: Args {
    /// Runs the command. An error has a message for the user.
    fn run(self, out: &mut dyn Write) -> Result<()>;
}

/// Writes text and flushes it.
fn print(out: &mut dyn Write, text: &str) -> Result<()> {
    // Generated text may contain control characters: they are escaped on a terminal and passed
    // through to files and pipes.
    let text = if std::io::stdout().is_terminal() {
        printable_text(text)
    } else {
        text.into()
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(TrainError::Output)
}

/// Checks the file of an output flag before anything slow: its folder exists, and it is none of the
/// inputs.
fn check_output(flag: &str, path: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    let Some(path) = path else {
        return Ok(());
    };
    let output = path.display();
    let folder = path.parent().filter(|it| *it != Path::new(""));
    if let Some(folder) = folder.filter(|it| !it.is_dir()) {
        return Err(TrainError::Refused(format!(
            "{flag} {output}: no folder {}\n  help: create it, or choose another file",
            folder.display()
        )));
    }
    let Some(target) = path.canonicalize().ok().filter(|it| it.is_file()) else {
        return Ok(());
    };
    let is_target = |input: &&Path| input.canonicalize().is_ok_and(|input| input == target);
    if inputs.iter().any(is_target) {
        return Err(TrainError::Refused(format!(
            "{flag} {output} is the input and would be overwritten\n  help: choose another file"
        )));
    }
    Ok(())
}

/// Parses the value of the former option `--part`: an error that names the new one.
fn renamed_part(
    new: &'static str,
) -> impl Fn(&str) -> Result<Infallible, String> + Clone + Send + Sync + 'static {
    move |_| Err(format!("--part has been renamed to {new}"))
}

/// Whether the reader of the output has closed the pipe: `zoo translate ... | head`.
pub fn is_closed_pipe(error: &TrainError) -> bool {
    matches!(error, TrainError::Output(source) if source.kind() == std::io::ErrorKind::BrokenPipe)
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Use the run in this folder, such as runs/transformer-reverse, or a model folder of Hugging
    /// Face's transformers
    #[arg(value_name = "RUN")]
    folder: PathBuf,

    /// Use these weights: best, last, average, or a step
    #[arg(
        long,
        value_name = "CHECKPOINT",
        default_value = "best",
        hide_possible_values = true
    )]
    #[arg(value_parser = with_names::<CheckpointChoice, _>(["best", "last", "average"]))]
    checkpoint: CheckpointChoice,

    /// Compute on this backend [default: the backend of the training run]
    #[arg(long, value_name = "BACKEND", hide_possible_values = true)]
    #[arg(value_parser = with_names::<BackendId, _>(Backend::ALL.map(Backend::name)))]
    backend: Option<BackendId>,

    /// Override a key of the run's config: --set decoding.max_length=64
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl RunArgs {
    fn open(&self) -> Result<TrainedRun> {
        let overrides = self.set.iter().map(|text| Override::set(text));
        let overrides: Vec<Override> = overrides.collect::<Result<_, _>>()?;
        TrainedRun::open(&self.folder, self.checkpoint, self.backend, &overrides)
    }
}

impl TrainedRun {
    /// The run, the step of its weights and the device, in one line.
    pub(crate) fn description(&self) -> String {
        let step = match self.step {
            Some(step) => format!("step {step}"),
            None => self.weights_without_step().to_owned(),
        };
        format!("{}, {step}, {}", self.folder.path().display(), self.opened)
    }
}
