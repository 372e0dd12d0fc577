//! The commands of the `zoo` program.

pub mod attend;
pub mod average;
pub mod classify;
pub mod decoding;
pub mod eval;
pub mod generate;
mod input;
pub mod inspect;
pub mod new;
mod signals;
pub mod train;
pub mod translate;
pub mod using;

use std::io::{IsTerminal, Write};

use zoo_spec::printable_text;

use crate::TrainError;
pub use crate::out::print_error_line;

/// Writes text where people and other programs read it, at once.
fn print(out: &mut dyn Write, text: &str) -> Result<(), TrainError> {
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
