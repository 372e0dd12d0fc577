//! What a person can get wrong with data, with the file and the line it is about.

use std::io;
use std::path::PathBuf;

use zoo_spec::{NotUtf8, Printable, UnknownWord, printable_text};

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
    /// A compressed file would become larger than any text of its size.
    #[error(
        "{} would become more than {} MiB, which no text of its size does: it is not read. If you \
         know what it is, unpack it and name what is in it",
        path.display(),
        most >> 20
    )]
    TooLarge {
        /// Which.
        path: PathBuf,
        /// What it may become, in bytes.
        most: u64,
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
    /// An archive has several files, and it is not said which, or none of that name.
    #[error(
        "{} has no single file to read: write the one you mean behind a #, for example {}#{}",
        path.display(),
        path.display(),
        Printable(example)
    )]
    WhichEntry {
        /// The archive.
        path: PathBuf,
        /// A file that it has.
        example: String,
    },
    /// An archive has no file of that name.
    #[error("{}: {unknown}", path.display())]
    NoEntry {
        /// The archive.
        path: PathBuf,
        /// The name, and those that there are.
        unknown: UnknownWord,
    },
    /// There is nothing to learn from.
    #[error("{} has no examples", Printable(what))]
    Empty {
        /// Which file, or which part of the data.
        what: String,
    },
    /// Two files that belong together line by line do not.
    #[error(
        "{} has {source_lines} lines and {} has {target_lines}: line N of one must be the \
         translation of line N of the other",
        Printable(source_name),
        Printable(target_name)
    )]
    LinesDiffer {
        /// The file of the sources.
        source_name: String,
        /// Lines of it.
        source_lines: usize,
        /// The file of the targets.
        target_name: String,
        /// Lines of it.
        target_lines: usize,
    },
    /// More lines than allowed cannot be parsed.
    #[error("too much of the data cannot be parsed, at most {:.1}% may be\n{report}", allowed * 100.0)]
    TooManyBad {
        /// The share that may be.
        allowed: f64,
        /// What was read, with the first bad lines.
        report: Box<ReadReport>,
    },
    /// A table has no column of that name.
    #[error("{}, line 1: {unknown}", Printable(name))]
    Column {
        /// The file.
        name: String,
        /// The column, and those that there are.
        unknown: UnknownWord,
    },
    /// A quote in a table that is not closed, or not where its field ends.
    #[error(
        "{}, line {line}: the quote that opens here {why}\n  do: remove it or close it; within a \
         quoted field a quote is written twice (\"\"). Texts that hold tables can be read from JSON \
         lines",
        Printable(name)
    )]
    Quote {
        /// The file, or the archive and the file in it.
        name: String,
        /// The line that the quote is on, counted from 1.
        line: usize,
        /// What becomes of it.
        why: String,
    },
    /// A label was not there to be learned.
    #[error(
        "the label \"{}\" is in the {part} data and not in the training data, which has: {}",
        Printable(label),
        listed(known)
    )]
    UnseenLabel {
        /// The label.
        label: String,
        /// Where it is: `validation`, `test`.
        part: String,
        /// Labels of the training data.
        known: Vec<String>,
    },
    /// Everything has the same label.
    #[error(
        "{}: all examples have the label \"{}\": there is nothing to tell apart",
        Printable(what),
        Printable(label)
    )]
    OneLabel {
        /// Which file or folder, or which part of the data.
        what: String,
        /// The label.
        label: String,
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
    /// A task has fewer different examples than were asked for.
    #[error(
        "the task {task} was asked for {asked} different examples and gives about {found}: ask for \
         fewer, or make it larger"
    )]
    TaskTooSmall {
        /// Which.
        task: &'static str,
        /// Examples asked for, in all parts.
        asked: usize,
        /// Examples found.
        found: usize,
    },
    /// A tokenizer cannot be made, read or used.
    #[error("tokenizer {}: {}", Printable(name), printable_text(why))]
    Tokenizer {
        /// Its file, or what it is for.
        name: String,
        /// Why.
        why: String,
    },
    /// A tokenizer of another program has its special tokens elsewhere.
    #[error(
        "tokenizer {}: token {id} must be {expected}, and is {}; train one here, or renumber it",
        Printable(name),
        Printable(got)
    )]
    SpecialToken {
        /// Its file.
        name: String,
        /// The token.
        id: u32,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        got: String,
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
    /// A text is too short to cut windows from.
    #[error("the {part} text has {tokens} tokens, and a window of {context} needs {}", context + 1)]
    TextTooShort {
        /// Which text.
        part: String,
        /// Tokens it has.
        tokens: usize,
        /// Tokens of a window.
        context: usize,
    },
}

/// Labels that are listed; a wrong column may have as many as there are examples.
const SHOWN: usize = 50;

fn listed(labels: &[String]) -> String {
    let shown = labels.iter().take(SHOWN);
    let shown: Vec<String> = shown.map(|label| Printable(label).to_string()).collect();
    match labels.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

impl DataError {
    /// `field` must be at least `least`, and is `got`.
    pub(crate) fn at_least(field: &'static str, least: usize, got: usize) -> Result<(), Self> {
        Self::range(got >= least, field, format!("at least {least}"), got)
    }

    /// `field` must be at most `most`, and is `got`.
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
        match is_right {
            true => Ok(()),
            false => Err(Self::Range {
                field,
                allowed,
                got: got.to_string(),
            }),
        }
    }
}
