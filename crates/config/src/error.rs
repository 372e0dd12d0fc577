//! Errors of a config, with their locations.

use std::fmt;

use zoo_spec::Printable;

/// A config that cannot be used. The message says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read, a flag is malformed, or a template does not exist.
    #[error("{0}")]
    InvalidInput(String),
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// One or more invalid keys or values.
    #[error("{0}")]
    Diagnostics(String),
    /// The run needs more memory than there is.
    #[error("{0}")]
    Memory(String),
}

/// Where a key or value was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Location {
    /// In a file; line and column start at 1.
    File {
        name: String,
        line: usize,
        column: usize,
    },
    /// In a command-line flag.
    Flag(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(f, "{}:{line}:{column}", Printable(name)),
            Self::Flag(flag) => Printable(flag).fmt(f),
        }
    }
}

/// An invalid key or value.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    pub(crate) location: Location,
    /// The full key, what is wrong with it, and what is allowed.
    pub(crate) message: String,
}

/// One line for each diagnostic.
pub(crate) fn join(diagnostics: &[Diagnostic]) -> String {
    let line = |diagnostic: &Diagnostic| format!("{}: {}", diagnostic.location, diagnostic.message);
    diagnostics.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The message for a value of the wrong type or out of range.
pub(crate) fn invalid_value(key: &str, allowed: &str, found: &str) -> String {
    format!("{key} must be {allowed}, found {}", Printable(found))
}

pub(crate) fn syntax_error(location: &Location, why: &str) -> ConfigError {
    ConfigError::Syntax(format!("{location}: invalid TOML: {}", Printable(why)))
}
