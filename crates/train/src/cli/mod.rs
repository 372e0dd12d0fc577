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
pub mod train;
pub mod translate;
pub mod using;

use std::io::Write;
use std::path::Path;

use crate::TrainError;

/// An error about what is printed, for `map_err`.
fn printing(error: std::io::Error) -> TrainError {
    TrainError::file("standard output")(error)
}

/// Writes text where people and other programs read it, at once.
fn print(out: &mut dyn Write, text: &str) -> Result<(), TrainError> {
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(printing)
}

/// Whether an error is that nobody reads any more: `zoo translate ... | head`.
pub fn is_closed_pipe(error: &TrainError) -> bool {
    let TrainError::File { path, source } = error else {
        return false;
    };
    path == Path::new("standard output") && source.kind() == std::io::ErrorKind::BrokenPipe
}
