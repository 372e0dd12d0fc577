//! What can be wrong with a config, and where.

use std::fmt;

use zoo_spec::Printable;

/// A config that cannot be used: each says what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file is not there or no text, a flag cannot be read, or there is no such template.
    #[error("{0}")]
    Refused(String),
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// The file says what it may not, in one place or several.
    #[error("{0}")]
    Mistakes(String),
    /// Less memory than the sizes need.
    #[error("{0}")]
    Memory(String),
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// In a file, line and column counted from 1 on.
    File {
        name: String,
        line: usize,
        column: usize,
    },
    /// In a flag.
    Flag(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, column } => write!(f, "{}:{line}:{column}", Printable(name)),
            Self::Flag(flag) => Printable(flag).fmt(f),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) place: Place,
    /// The key with its section, what is wrong with it, and what it may be.
    pub(crate) what: String,
}

/// Mistakes as lines.
pub(crate) fn joined(mistakes: &[Mistake]) -> String {
    let line = |mistake: &Mistake| format!("{}: {}", mistake.place, mistake.what);
    mistakes.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What is said of a value of the wrong type, or out of range.
pub(crate) fn wrong_value(key: &str, allowed: &str, found: &str) -> String {
    format!("{key} must be {allowed}, found {}", Printable(found))
}

/// What is said of text that is not TOML.
pub(crate) fn no_toml(place: &Place, why: &str) -> ConfigError {
    ConfigError::Syntax(format!("{place}: this is not TOML: {}", Printable(why)))
}
