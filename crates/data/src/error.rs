//! Errors of reading, generating, splitting, tokenizing and batching data.

use std::io;
use std::path::Path;

use zoo_spec::{Printable, printable_text};

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
    /// More lines than `allowed_bad` could not be parsed.
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
        Self::Invalid(format!("cannot read {}: {error}", path.display()))
    }

    pub(crate) fn empty(what: impl Into<String>) -> Self {
        Self::Empty { what: what.into() }
    }

    pub(crate) fn at_least(field: &str, min: usize, got: usize) -> Result<(), Self> {
        let message = || format!("{field} must be at least {min}, got {got}");
        Self::range(got >= min, message)
    }

    pub(crate) fn at_most(field: &str, max: usize, got: usize) -> Result<(), Self> {
        let message = || format!("{field} must be at most {max}, got {got}");
        Self::range(got <= max, message)
    }

    pub(crate) fn fraction(field: &str, got: f64) -> Result<(), Self> {
        let message = || format!("{field} must be at least 0 and below 1, got {got}");
        Self::range((0.0..1.0).contains(&got), message)
    }

    fn range(is_valid: bool, message: impl Fn() -> String) -> Result<(), Self> {
        if is_valid {
            Ok(())
        } else {
            Err(Self::Range(message()))
        }
    }
}
