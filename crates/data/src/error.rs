//! What a person can get wrong with data, with the file and the line it is about.

use std::io;
use std::path::Path;

use zoo_spec::{Printable, printable_text};

/// Data that cannot be read, made up, split, tokenized or batched: each says what is wrong, where,
/// and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A text is in another encoding, or no text.
    #[error("{0}")]
    Encoding(String),
    /// An archive has a file that would lie outside of the folder it is unpacked to.
    #[error("{0}")]
    LeavesFolder(String),
    /// There is nothing to learn from.
    #[error("{} has no examples", Printable(what))]
    Empty {
        /// Which file, or which part of the data.
        what: String,
    },
    /// More lines than allowed cannot be parsed.
    #[error("{0}")]
    TooManyBad(String),
    /// A number is out of range.
    #[error("{0}")]
    Range(String),
    /// A tokenizer cannot be made, read or used.
    #[error("tokenizer {}: {}", Printable(name), printable_text(why))]
    Tokenizer {
        /// Its file, or what it is for.
        name: String,
        /// Why.
        why: String,
    },
    /// An example is longer than allowed.
    #[error(
        "example {example} has {length} tokens, and at most {longest} are allowed: shorten it, leave \
         it out, or allow more"
    )]
    TooLong {
        /// Which, counted from 0.
        example: usize,
        /// How long it is.
        length: usize,
        /// How long it may be.
        longest: usize,
    },
    /// Data that does not fit what it is for, or a file that cannot be read.
    #[error("{0}")]
    Refused(String),
}

impl DataError {
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self::Refused(format!("cannot read {}: {error}", path.display()))
    }

    pub(crate) fn at_least(field: &str, least: usize, got: usize) -> Result<(), Self> {
        let message = || format!("{field} must be at least {least}, got {got}");
        Self::range(got >= least, message)
    }

    pub(crate) fn at_most(field: &str, most: usize, got: usize) -> Result<(), Self> {
        let message = || format!("{field} must be at most {most}, got {got}");
        Self::range(got <= most, message)
    }

    pub(crate) fn share(field: &str, got: f64) -> Result<(), Self> {
        let message = || format!("{field} must be at least 0 and below 1, got {got}");
        Self::range((0.0..1.0).contains(&got), message)
    }

    fn range(is_right: bool, message: impl Fn() -> String) -> Result<(), Self> {
        match is_right {
            true => Ok(()),
            false => Err(Self::Range(message())),
        }
    }
}
