//! Standard output and standard error, written only here.
//!
//! `println!` and `eprintln!` panic when a pipe is closed (`zoo train ... | head`) or a disk is
//! full, and a panic ends a run without a checkpoint. Lints in `lib.rs` forbid them.

use std::fmt::Display;
use std::io::Write;

use zoo_config::{ErrorStyle, wrap};
use zoo_spec::printable_text;

use crate::TrainError;

/// Prints a line about a run. The run's log has it as well, so an error is ignored.
pub(crate) fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints an error, wrapped and in colour on a terminal. Control characters are escaped.
pub fn print_error(error: &TrainError) {
    let style = ErrorStyle::stderr();
    let text = match error {
        TrainError::Config(error) => style.format_config(error),
        error => style.format(&printable_text(&error.to_string())),
    };
    print_error_text(text.as_bytes());
}

/// Prints a line to standard error, wrapped, with control characters escaped. An error is ignored: there is
/// nowhere left to report it.
pub(crate) fn print_error_line(line: impl Display) {
    let line = line.to_string();
    let line = printable_text(&line);
    let line = match ErrorStyle::stderr().width {
        Some(width) => wrap(&line, width),
        None => format!("{line}\n"),
    };
    print_error_text(line.as_bytes());
}

/// Passes text of another process on to standard error.
pub(crate) fn print_error_text(text: &[u8]) {
    let _ = std::io::stderr().write_all(text);
}

pub(crate) fn print_prompt(prompt: &str) {
    let _ = write!(std::io::stderr(), "{prompt}");
}
