//! What can be wrong with a config, and where.

use std::fmt;
use std::path::PathBuf;

use zoo_spec::{NotUtf8, Printable, UnknownWord};

use crate::estimate::{Bytes, Estimate};

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
    /// Less memory than the sizes need.
    #[error(
        "{what} takes at least {} of memory, and there is {}: {} parameters take {}{}\n  do: \
         lower {}, or take a machine with more memory",
        Bytes(estimate.total()),
        Bytes(u128::from(*memory)),
        estimate.parameters,
        Bytes(estimate.weights),
        others(estimate),
        keys.join(", ")
    )]
    Memory {
        /// What takes it.
        what: &'static str,
        /// What is taken, by parts.
        estimate: Box<Estimate>,
        /// The bytes there are.
        memory: u64,
        /// The keys that make it large.
        keys: Vec<&'static str>,
    },
    /// There is no template of this name.
    #[error(transparent)]
    Template(UnknownWord),
}

/// What there is beside the weights.
fn others(estimate: &Estimate) -> String {
    let parts = [
        ("gradients and the optimizer", estimate.learning),
        ("a batch", estimate.batch),
        ("the data", estimate.data),
    ];
    let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
    let parts = parts.map(|(what, bytes)| format!(", {what} {}", Bytes(*bytes)));
    parts.collect()
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
#[error("{place}: {problem}")]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// What.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// No section is called so.
    UnknownSection {
        /// With the nearest one.
        unknown: UnknownWord,
        /// The section that has a key of this name.
        key_of: Option<&'static str>,
    },
    /// No key is called so.
    UnknownKey {
        /// Where it was looked for: `[model] of kind gpt`.
        table: String,
        /// With the nearest one.
        unknown: UnknownWord,
        /// The section that has a key of this name.
        key_of: Option<&'static str>,
    },
    /// The key belongs to other kinds than the one that was chosen.
    OtherKind {
        /// The key, with its section.
        key: String,
        /// The kinds it belongs to.
        of: Vec<&'static str>,
        /// The key that chooses.
        chooser: String,
        /// What it chose.
        chosen: &'static str,
        /// The keys that this has.
        known: Vec<&'static str>,
    },
    /// A word that the key does not know.
    UnknownWord {
        /// The key, with its section.
        key: String,
        /// With the nearest one.
        unknown: UnknownWord,
    },
    /// A value of the wrong type, or out of range.
    Value {
        /// The key, with its section.
        key: String,
        /// What it may be.
        allowed: String,
        /// What it is.
        found: String,
    },
    /// A key that cannot be left out.
    Missing {
        /// The key, with its section.
        key: String,
        /// What it may be.
        allowed: String,
    },
    /// A file that is not there.
    NoFile {
        /// The key, with its section.
        key: String,
        /// The file.
        path: PathBuf,
        /// Where it was looked for, if the path does not say it all.
        folder: Option<PathBuf>,
    },
    /// What does not go together with something else.
    Misfit {
        /// The key, with its section.
        key: String,
        /// Why, and what to do.
        why: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSection { unknown, key_of } => {
                unknown.fmt(f)?;
                hint(f, &unknown.got, *key_of)
            }
            Self::UnknownKey {
                table,
                unknown,
                key_of,
            } => {
                write!(f, "{table}: {unknown}")?;
                hint(f, &unknown.got, *key_of)
            }
            Self::OtherKind {
                key,
                of,
                chooser,
                chosen,
                known,
            } => {
                let of = of.join(", ");
                write!(f, "{key} is a key of {of}, and {chooser} is {chosen}")?;
                match known.is_empty() {
                    true => write!(f, "\n  {chosen} has no keys of its own"),
                    false => write!(f, "\n  keys of {chosen}: {}", known.join(", ")),
                }
            }
            Self::UnknownWord { key, unknown } => write!(f, "{key}: {unknown}"),
            Self::Value {
                key,
                allowed,
                found,
            } => write!(f, "{key} must be {allowed}, found {}", Printable(found)),
            Self::Missing { key, allowed } => write!(f, "{key} is missing: it must be {allowed}"),
            Self::NoFile { key, path, folder } => {
                write!(f, "{key}: there is no {}", path.display())?;
                match folder {
                    Some(folder) => write!(f, " in {}", folder.display()),
                    None => Ok(()),
                }
            }
            Self::Misfit { key, why } => write!(f, "{key}: {why}"),
        }
    }
}

fn hint(f: &mut fmt::Formatter<'_>, key: &str, section: Option<&str>) -> fmt::Result {
    match section {
        Some(section) => write!(f, "\n  there is a {} in [{section}]", Printable(key)),
        None => Ok(()),
    }
}
