//! Standard output and standard error, written only here.
//!
//! `println!` and `eprintln!` panic when a pipe is closed (`zoo train ... | head`) or a disk is
//! full, and a panic ends a run without a checkpoint. Lints in `lib.rs` forbid them.

use std::fmt::Display;
use std::io::Write;

use zoo_spec::printable_text;

/// Prints a line about a run. The run's log has it as well, so an error is ignored.
pub(crate) fn print_line(line: impl Display) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line to standard error, with control characters escaped. An error is ignored: there is
/// nowhere left to report it.
pub fn print_error_line(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", printable_text(&line.to_string()));
}

pub(crate) fn print_prompt(prompt: &str) {
    let _ = write!(std::io::stderr(), "{prompt}");
}
