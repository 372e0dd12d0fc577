//! Standard output and standard error: the only place of the crate that writes to them.
//!
//! `println!` and `eprintln!` panic when a pipe was closed (`zoo train ... | head`) or a disk is
//! full, and a panic ends a run without a checkpoint. Lints in `lib.rs` forbid them.

use std::fmt::Display;
use std::io::Write;

use zoo_spec::printable_text;

/// Prints a line about a run that goes on. It is in the run's log as well, so an error is
/// ignored.
pub(crate) fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line for people to standard error, without control characters that came from files.
/// An error is ignored: there is nowhere left to report it.
pub fn print_error_line(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", printable_text(&line.to_string()));
}

/// Prints what asks for input, without ending the line.
pub(crate) fn print_prompt(prompt: &str) {
    let _ = write!(std::io::stderr(), "{prompt}");
}
