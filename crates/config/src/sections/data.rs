//! `[data]`: what is learned from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::keys::{
    EXAMPLES, EXAMPLES_OR_NONE, GENERATED, LIMIT, Presence, SHARE, Values, count, keys, kinds,
    words,
};

kinds! {
    /// What is learned from.
    pub enum Data {
        /// Made up: a sequence of letters, to be written again.
        Copy(Sequences) = "copy",
        /// Made up: a sequence of letters, to be written backwards.
        Reverse(Sequences) = "reverse",
        /// Made up: a sequence of letters, to be written in their order.
        Sort(Sequences) = "sort",
        /// Made up: a date as people write it, to be written as `1998-05-03`.
        Dates(Dates) = "dates",
        /// Made up: letters with a digit each, and one of the letters, whose digit is asked for.
        Recall(Recall) = "recall",
        /// Made up: nested operations on lists of digits, whose result is the class.
        ListOps(ListOps) = "listops",
        /// Made up: documents of sentences, of which few words tell the class.
        Documents(Documents) = "documents",
        /// A small set of phrases in Chinese and English, written by hand.
        Phrases(Phrases) = "phrases",
        /// Files of texts and their translations.
        Parallel(Parallel) = "parallel",
        /// Files of texts and their classes.
        Labelled(Labelled) = "labelled",
        /// Files of text that is to be gone on with.
        Plain(Plain) = "plain",
    }
}

keys! {
    /// Sequences of letters that are made up.
    pub struct Sequences {
        /// How many letters there are.
        symbols: usize = 20, count(2, 1 << 20);
        /// Letters of the shortest sequence.
        min_length: usize = 4, GENERATED;
        /// Letters of the longest sequence.
        max_length: usize = 12, GENERATED;
        /// Examples to learn from.
        train_size: usize = 20_000, EXAMPLES;
        /// Examples to validate with.
        valid_size: usize = 500, EXAMPLES;
        /// Examples to test with in the end.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }
}

keys! {
    /// Dates that are made up.
    pub struct Dates {
        /// The first year there is.
        first_year: usize = 1950, count(1000, 1 << 20);
        /// The last year there is.
        last_year: usize = 2049, count(1000, 1 << 20);
        /// Examples to learn from.
        train_size: usize = 20_000, EXAMPLES;
        /// Examples to validate with.
        valid_size: usize = 500, EXAMPLES;
        /// Examples to test with in the end.
        test_size: usize = 1000, EXAMPLES_OR_NONE;
    }
}

keys! {
    /// Letters with digits to be recalled, made up.
    pub struct Recall {
        /// Letters of the shortest example.
        min_keys: usize = 2, count(1, 1 << 20);
        /// Letters of the longest example, at most 26.
        max_keys: usize = 8, count(1, 1 << 20);
        /// Examples to learn from.
        train_size: usize = 20_000, EXAMPLES;
        /// Examples to validate with.
        valid_size: usize = 500, EXAMPLES;
        /// Examples to test with in the end.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }
}

keys! {
    /// Nested operations on lists, made up: Nangia and Bowman,
    /// [ListOps](https://arxiv.org/abs/1804.06028), 2018.
    pub struct ListOps {
        /// How deep operations are within each other.
        max_depth: usize = 4, count(1, 256);
        /// How many digits or operations an operation has.
        max_arguments: usize = 5, count(2, 1 << 16);
        /// Tokens of the shortest example.
        min_length: usize = 8, count(1, 1 << 14);
        /// Tokens of the longest example.
        max_length: usize = 128, count(1, 1 << 14);
        /// Examples to learn from.
        train_size: usize = 20_000, EXAMPLES;
        /// Examples to validate with.
        valid_size: usize = 1000, EXAMPLES;
        /// Examples to test with in the end.
        test_size: usize = 1000, EXAMPLES_OR_NONE;
    }
}

keys! {
    /// Documents that are made up.
    pub struct Documents {
        /// How many classes there are, at most 8.
        classes: usize = 4, count(2, 1 << 20);
        /// Sentences of the shortest document.
        min_sentences: usize = 4, count(1, 1 << 16);
        /// Sentences of the longest document.
        max_sentences: usize = 10, count(1, 1 << 16);
        /// Words of the shortest sentence.
        min_words: usize = 5, count(2, 1 << 16);
        /// Words of the longest sentence.
        max_words: usize = 12, count(2, 1 << 16);
        /// Sentences that tell the class.
        key_sentences: usize = 2, count(1, 1 << 16);
        /// Sentences that seem to tell another.
        decoys: usize = 2, count(0, 1 << 16);
        /// Examples to learn from.
        train_size: usize = 4000, EXAMPLES;
        /// Examples to validate with.
        valid_size: usize = 500, EXAMPLES;
        /// Examples to test with in the end.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }
}

keys! {
    /// Phrases that were written by hand.
    pub struct Phrases {
        /// Which language is given, and which is wanted.
        direction: Direction = Direction::ChineseToEnglish, Values::Words(Direction::WORDS);
        /// The share that is kept for validation, drawn by `run.seed`; with none, validation
        /// is on what was learned.
        valid_share: f64 = 0.0, SHARE;
    }
}

words! {
    /// Which language is given, and which is wanted.
    pub enum Direction: "direction" {
        /// Chinese to English.
        ChineseToEnglish = "zh-en",
        /// English to Chinese.
        EnglishToChinese = "en-zh",
    }
}

/// The share that [`Parallel`], [`Labelled`] and [`Plain`] keep where nothing else is said.
pub(crate) const USUAL_VALID_SHARE: f64 = 0.1;

keys! {
    /// Files of texts and their translations.
    pub struct Parallel {
        /// Two files, whose lines belong together, or one of columns with a tab between.
        train: Files = Files::One(PathBuf::new()), Values::Paths, Presence::Required;
        /// The same to validate with.
        valid: Option<Files> = None, Values::Paths, Presence::Optional("a share of `train`");
        /// The same to test with in the end.
        test: Option<Files> = None, Values::Paths, Presence::Optional("`test_share` of `train`");
        /// The share of `train` that is kept for validation, drawn by `run.seed`.
        valid_share: Option<f64> = None, SHARE, Presence::Optional("0.1, or none if `valid` is given");
        /// The share of `train` that is kept for the test.
        test_share: Option<f64> = None, SHARE, Presence::Optional("none");
        /// The column of the source, counted from 1, in one file of columns.
        source_column: Option<usize> = None, count(1, 1 << 16), Presence::Optional("1");
        /// The column of the target.
        target_column: Option<usize> = None, count(1, 1 << 16), Presence::Optional("2");
        /// Pairs that are read of `train`.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// Tokens of the longest text; pairs with a longer one are left out, and counted.
        max_length: Option<usize> = None, LIMIT, Presence::Optional("any length");
        /// The share of lines that may be wrong; they are counted, and the first ones shown.
        allowed_bad: f64 = 0.01, SHARE;
    }
}

keys! {
    /// Files of texts and their classes.
    pub struct Labelled {
        /// A file, or a folder or archive with a folder for each class.
        train: PathBuf = PathBuf::new(), Values::Path, Presence::Required;
        /// The same to validate with.
        valid: Option<PathBuf> = None, Values::Path, Presence::Optional("a share of `train`");
        /// The same to test with in the end.
        test: Option<PathBuf> = None, Values::Path, Presence::Optional("`test_share` of `train`");
        /// The share of `train` that is kept for validation, drawn by `run.seed`.
        valid_share: Option<f64> = None, SHARE, Presence::Optional("0.1, or none if `valid` is given");
        /// The share of `train` that is kept for the test.
        test_share: Option<f64> = None, SHARE, Presence::Optional("none");
        /// What the files are.
        format: Format = Format::Auto, Values::Words(Format::WORDS);
        /// What the class is called in the first line of a CSV file, or in a JSON object.
        label_field: String = "label".to_owned(), Values::Text;
        /// What the text is called there.
        text_field: String = "text".to_owned(), Values::Text;
        /// What ends a sentence; for `han` alone.
        sentences: Option<Sentences> = None, Values::Words(Sentences::WORDS),
            Presence::Optional("`marks` for `han`");
        /// Examples that are read of `train`.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// Tokens that are read of a text, the rest is cut off; not for `han`.
        max_length: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// Sentences that are read of a document, the rest is cut off; for `han` alone.
        max_sentences: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// Words that are read of a sentence, the rest is cut off; for `han` alone.
        max_words: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// The share of lines that may be wrong; they are counted, and the first ones shown.
        allowed_bad: f64 = 0.01, SHARE;
    }
}

keys! {
    /// Files of text that is to be gone on with.
    pub struct Plain {
        /// A file of text.
        train: PathBuf = PathBuf::new(), Values::Path, Presence::Required;
        /// The same to validate with.
        valid: Option<PathBuf> = None, Values::Path, Presence::Optional("a share of `train`");
        /// The same to test with in the end.
        test: Option<PathBuf> = None, Values::Path, Presence::Optional("`test_share` of `train`");
        /// The share of `train`, at its end, that is kept for validation.
        valid_share: Option<f64> = None, SHARE, Presence::Optional("0.1, or none if `valid` is given");
        /// The share of `train`, after that, that is kept for the test.
        test_share: Option<f64> = None, SHARE, Presence::Optional("none");
    }
}

words! {
    /// What a file of labelled texts is.
    pub enum Format: "format" {
        /// As the name ends: `.tsv` or `.txt`, `.csv`, `.jsonl`, else a folder or archive.
        Auto = "auto",
        /// Lines of a class, a tab and a text.
        Tsv = "tsv",
        /// Columns with commas between, and their names in the first line; fields in quotes may hold commas and lines, and a quote that is not closed is an error.
        Csv = "csv",
        /// A JSON object in each line.
        JsonLines = "json-lines",
        /// A folder for each class, a file for each text.
        Folders = "folders",
    }
}

words! {
    /// What ends a sentence.
    pub enum Sentences: "rule for sentences" {
        /// The line's end.
        Lines = "lines",
        /// A full stop, a question mark or the like.
        Marks = "marks",
    }
}

/// One file, or two whose lines belong together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Files {
    /// One of columns, or one for everything.
    One(PathBuf),
    /// One for the source, one for the target.
    Two([PathBuf; 2]),
}

/// What is to be done with data, whatever it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// To write a text for a text.
    Pairs,
    /// To say which class a text is of.
    Classes,
    /// To go on with a text.
    Continuation,
}

impl Data {
    /// What is to be done with it.
    pub fn task(&self) -> Task {
        match self {
            Self::Copy(_)
            | Self::Reverse(_)
            | Self::Sort(_)
            | Self::Dates(_)
            | Self::Recall(_)
            | Self::Phrases(_)
            | Self::Parallel(_) => Task::Pairs,
            Self::ListOps(_) | Self::Documents(_) | Self::Labelled(_) => Task::Classes,
            Self::Plain(_) => Task::Continuation,
        }
    }

    /// Whether it is made up, with spaces between all words.
    pub(crate) fn is_made_up(&self) -> bool {
        self.generated().is_some()
    }

    /// Whether texts come as sentences.
    pub fn has_sentences(&self) -> bool {
        matches!(self, Self::Documents(_) | Self::Labelled(_))
    }
}
