//! What a person can get wrong with data, with the file and the line it is about.

use std::io;
use std::path::PathBuf;

use zoo_spec::{NotUtf8, Printable, printable_text};

use crate::ReadReport;

/// Data that cannot be read, made up, split, tokenized or batched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A file is missing, or cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A text is in another encoding, or no text.
    #[error("{}, {wrong}", Printable(name))]
    Encoding {
        /// The file, or the archive and the file in it.
        name: String,
        /// Where, and what it may be.
        wrong: NotUtf8,
    },
    /// A compressed file is damaged, or not what its name says.
    #[error("{} cannot be unpacked: {}", path.display(), Printable(why))]
    Archive {
        /// Which.
        path: PathBuf,
        /// What its reader says.
        why: String,
    },
    /// An archive has a file that would lie outside of the folder it is unpacked to.
    #[error(
        "{} has an entry that leaves its folder: \"{}\". Nothing of it is read: make the \
         archive anew, with names relative to one folder",
        path.display(),
        Printable(entry)
    )]
    LeavesFolder {
        /// The archive.
        path: PathBuf,
        /// The entry.
        entry: String,
    },
    /// There is nothing to learn from.
    #[error("{} has no examples", Printable(what))]
    Empty {
        /// Which file, or which part of the data.
        what: String,
    },
    /// More lines than allowed cannot be parsed.
    #[error("too much of the data cannot be parsed, at most {:.1}% may be\n{report}", allowed * 100.0)]
    TooManyBad {
        /// The share that may be.
        allowed: f64,
        /// What was read, with the first bad lines.
        report: Box<ReadReport>,
    },
    /// A number is out of range.
    #[error("{field} must be {allowed}, got {got}")]
    Range {
        /// What it is called.
        field: &'static str,
        /// What it may be.
        allowed: String,
        /// What it is.
        got: String,
    },
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
    /// Data that does not fit what it is for: what is wrong, where, and what to do.
    #[error("{0}")]
    Refused(String),
}

impl DataError {
    pub(crate) fn at_least(field: &'static str, least: usize, got: usize) -> Result<(), Self> {
        Self::range(got >= least, field, format!("at least {least}"), got)
    }

    pub(crate) fn at_most(field: &'static str, most: usize, got: usize) -> Result<(), Self> {
        Self::range(got <= most, field, format!("at most {most}"), got)
    }

    /// `field` is a share: at least 0, and below 1.
    pub(crate) fn share(field: &'static str, got: f64) -> Result<(), Self> {
        let is_share = (0.0..1.0).contains(&got);
        Self::range(is_share, field, "at least 0 and below 1".to_owned(), got)
    }

    fn range(
        is_right: bool,
        field: &'static str,
        allowed: String,
        got: impl ToString,
    ) -> Result<(), Self> {
        let got = got.to_string();
        let range = || Self::Range {
            field,
            allowed,
            got,
        };
        if is_right { Ok(()) } else { Err(range()) }
    }
}
