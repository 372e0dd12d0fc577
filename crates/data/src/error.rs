//! Errors of reading, generating, splitting, tokenizing and batching data.

use std::fmt::Display;
use std::io;
use std::path::Path;

use zoo_spec::{Printable, closest_path, printable_text};

/// Data that cannot be read, generated, split, tokenized or batched. Messages name the file and
/// line where there is one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A text is not UTF-8.
    #[error("{0}")]
    Encoding(String),
    /// An archive entry whose path leaves the archive's folder.
    #[error("{0}")]
    PathTraversal(String),
    /// There are no examples.
    #[error("{} has no examples", Printable(what))]
    Empty {
        /// The file or split.
        what: String,
    },
    /// More lines than `max_malformed` could not be parsed.
    #[error("{0}")]
    TooManyBad(String),
    /// A value is out of range.
    #[error("{0}")]
    Range(String),
    /// A tokenizer cannot be trained, loaded or used.
    #[error("tokenizer {}: {}", Printable(name), printable_text(reason))]
    Tokenizer {
        /// Its file or kind.
        name: String,
        /// The cause.
        reason: String,
    },
    /// An example has more tokens than a batch.
    #[error(
        "example {example} has {length} tokens, more than a batch of {max}\n  help: truncate or drop long \
         examples, or use larger batches"
    )]
    TooLong {
        /// Index of the example.
        example: usize,
        /// Its number of tokens, with padding.
        length: usize,
        /// Tokens of a batch.
        max: usize,
    },
    /// Data that is inconsistent, or a file that cannot be read.
    #[error("{0}")]
    Invalid(String),
}

impl DataError {
    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        let help = match closest_path(path, Path::exists) {
            Some(closest) => format!("\n  help: did you mean {}?", closest.display()),
            None => String::new(),
        };
        Self::Invalid(format!("cannot read {}: {error}{help}", path.display()))
    }

    pub(crate) fn empty(what: impl Into<String>) -> Self {
        Self::Empty { what: what.into() }
    }

    pub(crate) fn at_least(field: &str, min: usize, got: usize) -> Result<(), Self> {
        Self::range(got >= min, field, &format!("at least {min}"), got)
    }

    pub(crate) fn at_most(field: &str, max: usize, got: usize) -> Result<(), Self> {
        Self::range(got <= max, field, &format!("at most {max}"), got)
    }

    pub(crate) fn fraction(field: &str, got: f64) -> Result<(), Self> {
        let is_valid = (0.0..1.0).contains(&got);
        Self::range(is_valid, field, "at least 0 and below 1", got)
    }

    fn range(is_valid: bool, field: &str, limit: &str, got: impl Display) -> Result<(), Self> {
        let error = || Self::Range(format!("{field} must be {limit}, got {got}"));
        is_valid.then_some(()).ok_or_else(error)
    }
}
