//! What can be wrong with a config, and where.

use std::fmt;
use std::path::PathBuf;

use zoo_spec::{NotUtf8, Printable, UnknownWord};

/// A config that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: the config cannot be read: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is in another encoding, or no text.
    #[error("{}, {wrong}", path.display())]
    Encoding {
        /// Which file.
        path: PathBuf,
        /// Where, and what it may be.
        wrong: NotUtf8,
    },
    /// The file is not TOML.
    #[error("{place}: this is not TOML: {}", Printable(message))]
    Syntax {
        /// Where it stops being.
        place: Place,
        /// Why.
        message: String,
    },
    /// A flag that is to change a key cannot be read.
    #[error(
        "{}: {message}; write for example --set model.layers=4",
        Printable(flag)
    )]
    Flag {
        /// The flag as it was written.
        flag: String,
        /// What is wrong with it.
        message: &'static str,
    },
    /// The file says what it may not, in one place or several.
    #[error("{}", joined(.0))]
    Mistakes(Vec<Mistake>),
    /// Files that the config names are not there.
    #[error(
        "{}\n  do: put the data there, the config says where it comes from, or name it: --set \
         {key}=PATH",
        joined(mistakes)
    )]
    NoFiles {
        /// The key of the first.
        key: String,
        /// Each, with where it is named.
        mistakes: Vec<Mistake>,
    },
    /// Less memory than the sizes need: what takes it, by parts, and the keys that make it large.
    #[error("{0}")]
    Memory(String),
    /// There is no template of this name.
    #[error(transparent)]
    Template(UnknownWord),
}

fn joined(mistakes: &[Mistake]) -> String {
    let lines: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

/// Where something was written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In a file, line and column counted from 1 on.
    File {
        /// The file's name.
        name: String,
        /// Its line.
        line: usize,
        /// The character in the line.
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
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// What: the key with its section, what is wrong with it, and what it may be.
    pub what: String,
}

/// What is said of a value of the wrong type, or out of range.
pub(crate) fn wrong_value(key: &str, allowed: &str, found: &str) -> String {
    format!("{key} must be {allowed}, found {}", Printable(found))
}
