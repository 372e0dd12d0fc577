//! `[data]`: the dataset.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::keys::{
    EXAMPLES, EXAMPLES_OR_NONE, GENERATED, LIMIT, PROBABILITY, Presence, Values, count, keys,
    kinds, names,
};

kinds! {
    /// The dataset.
    pub enum Data {
        /// Synthetic: copy a sequence of symbols (letters, or numbers if there are more than 26).
        Copy(Sequences) = "copy",
        /// Synthetic: reverse a sequence of symbols.
        Reverse(Sequences) = "reverse",
        /// Synthetic: sort a sequence of symbols.
        Sort(Sequences) = "sort",
        /// Synthetic: normalise a date in natural language to `1998-05-03`.
        Dates(Dates) = "dates",
        /// Synthetic: associative recall, a list of key-value pairs and a key whose value is the target, or the class.
        Recall(Recall) = "recall",
        /// Synthetic: nested operations on lists of digits, classified by their value.
        ListOps(ListOps) = "listops",
        /// Synthetic: documents in which only a few words determine the class.
        Documents(Documents) = "documents",
        /// A small set of phrases in Chinese and English (included).
        Phrases(Phrases) = "phrases",
        /// Parallel text files: source texts and their translations.
        Parallel(Parallel) = "parallel",
        /// Labelled text files: texts and their classes.
        Labelled(Labelled) = "labelled",
        /// Plain text files for language modelling.
        Plain(Plain) = "plain",
    }
}

keys! {
    /// Keys of `copy`, `reverse` and `sort`.
    pub struct Sequences {
        /// Alphabet size.
        symbols: usize = 20, count(2, 1 << 20);
        /// Minimum sequence length.
        min_length: usize = 4, GENERATED;
        /// Maximum sequence length.
        max_length: usize = 12, GENERATED;
        /// Training examples.
        train_size: usize = 20_000, EXAMPLES;
        /// Validation examples.
        valid_size: usize = 500, EXAMPLES;
        /// Test examples.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }

    /// Keys of `dates`.
    pub struct Dates {
        /// First year.
        first_year: usize = 1950, count(1000, 1 << 20);
        /// Last year.
        last_year: usize = 2049, count(1000, 1 << 20);
        /// Training examples.
        train_size: usize = 20_000, EXAMPLES;
        /// Validation examples.
        valid_size: usize = 500, EXAMPLES;
        /// Test examples.
        test_size: usize = 1000, EXAMPLES_OR_NONE;
    }

    /// Keys of `recall`.
    pub struct Recall {
        /// Minimum number of pairs.
        min_keys: usize = 2, count(1, 1 << 16);
        /// Maximum number of pairs, at most `symbols`.
        max_keys: usize = 8, count(1, 1 << 16);
        /// Minimum number of pairs of a training example, at most `min_keys`; in training the numbers of pairs
        /// are then log-uniform.
        train_min_keys: Option<usize> = None, count(1, 1 << 16), Presence::Optional("`min_keys`");
        /// Number of different keys: letters, or `k0`, `k1`, ... if there are more than 26.
        symbols: Option<usize> = None, count(1, 1 << 16), Presence::Optional("26, or `max_keys` if that is more");
        /// Number of different values, from 0.
        values: usize = 10, count(2, 1 << 16);
        /// Training examples.
        train_size: usize = 20_000, EXAMPLES;
        /// Validation examples.
        valid_size: usize = 500, EXAMPLES;
        /// Test examples.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }

    /// Keys of `listops`: Nangia and Bowman,
    /// [ListOps](https://arxiv.org/abs/1804.06028), 2018.
    pub struct ListOps {
        /// Maximum nesting depth.
        max_depth: usize = 4, count(1, 256);
        /// Maximum number of arguments per operation.
        max_arguments: usize = 5, count(2, 1 << 16);
        /// Minimum length in tokens.
        min_length: usize = 8, count(1, 1 << 14);
        /// Maximum length in tokens.
        max_length: usize = 128, count(1, 1 << 14);
        /// Training examples.
        train_size: usize = 20_000, EXAMPLES;
        /// Validation examples.
        valid_size: usize = 1000, EXAMPLES;
        /// Test examples.
        test_size: usize = 1000, EXAMPLES_OR_NONE;
    }

    /// Keys of `documents`.
    pub struct Documents {
        /// Number of classes, at most 8.
        classes: usize = 4, count(2, 1 << 20);
        /// Minimum sentences per document.
        min_sentences: usize = 4, count(1, 1 << 16);
        /// Maximum sentences per document.
        max_sentences: usize = 10, count(1, 1 << 16);
        /// Minimum words per sentence.
        min_words: usize = 5, count(2, 1 << 16);
        /// Maximum words per sentence.
        max_words: usize = 12, count(2, 1 << 16);
        /// Sentences that determine the class.
        key_sentences: usize = 2, count(1, 1 << 16);
        /// Distractor sentences with words of other classes.
        distractors: usize = 2, count(0, 1 << 16);
        /// Training examples.
        train_size: usize = 4000, EXAMPLES;
        /// Validation examples.
        valid_size: usize = 500, EXAMPLES;
        /// Test examples.
        test_size: usize = 500, EXAMPLES_OR_NONE;
    }

    /// Keys of `phrases`.
    pub struct Phrases {
        /// Source and target language.
        direction: Direction = Direction::ChineseToEnglish, Values::Names(Direction::NAMES);
        /// Fraction held out for validation, chosen with `run.seed`; if 0, the training phrases are used.
        valid_fraction: f64 = 0.0, PROBABILITY;
    }

    /// Keys of `parallel`.
    pub struct Parallel {
        /// Training data: two line-aligned files, or one file with tab-separated columns.
        train: Files = Files::One(PathBuf::new()), Values::Paths, Presence::Required;
        /// Validation data, in the same format.
        valid: Option<Files> = None, Values::Paths, Presence::Optional("`valid_fraction` of `train`");
        /// Test data, in the same format.
        test: Option<Files> = None, Values::Paths, Presence::Optional("`test_fraction` of `train`");
        /// Fraction of `train` held out for validation, chosen with `run.seed`.
        valid_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0.1, or 0 if `valid` is set");
        /// Fraction of `train` held out for testing.
        test_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0");
        /// Source column of a tab-separated file, starting at 1.
        source_column: Option<usize> = None, count(1, 1 << 16), Presence::Optional("1");
        /// Target column of a tab-separated file.
        target_column: Option<usize> = None, count(1, 1 << 16), Presence::Optional("2");
        /// Maximum number of training pairs.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum length in tokens; longer pairs are dropped and counted.
        max_length: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum fraction of malformed lines; they are skipped and counted, and the first ones are reported.
        max_malformed: f64 = 0.01, PROBABILITY;
    }

    /// Keys of `labelled`.
    pub struct Labelled {
        /// Training data: a file, or a folder or archive with one folder per class.
        train: PathBuf = PathBuf::new(), Values::Path, Presence::Required;
        /// Validation data, in the same format.
        valid: Option<PathBuf> = None, Values::Path, Presence::Optional("`valid_fraction` of `train`");
        /// Test data, in the same format.
        test: Option<PathBuf> = None, Values::Path, Presence::Optional("`test_fraction` of `train`");
        /// Fraction of `train` held out for validation, chosen with `run.seed`.
        valid_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0.1, or 0 if `valid` is set");
        /// Fraction of `train` held out for testing.
        test_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0");
        /// File format.
        format: Format = Format::Auto, Values::Names(Format::NAMES);
        /// Name of the label field (CSV column or JSON key).
        label_field: String = "label".to_owned(), Values::Text;
        /// Name of the text field (CSV column or JSON key).
        text_field: String = "text".to_owned(), Values::Text;
        /// Sentence splitting (`han` only).
        sentences: Option<Sentences> = None, Values::Names(Sentences::NAMES),
            Presence::Optional("`punctuation` for `han`");
        /// Maximum number of training examples.
        max_examples: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum tokens per text; longer texts are truncated (not for `han`).
        max_length: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum sentences per document; longer documents are truncated (`han` only).
        max_sentences: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum words per sentence; longer sentences are truncated (`han` only).
        max_words: Option<usize> = None, LIMIT, Presence::Optional("unlimited");
        /// Maximum fraction of malformed lines; they are skipped and counted, and the first ones are reported.
        max_malformed: f64 = 0.01, PROBABILITY;
    }

    /// Keys of `plain`.
    pub struct Plain {
        /// Training data: a text file.
        train: PathBuf = PathBuf::new(), Values::Path, Presence::Required;
        /// Validation data, in the same format.
        valid: Option<PathBuf> = None, Values::Path, Presence::Optional("`valid_fraction` of `train`");
        /// Test data, in the same format.
        test: Option<PathBuf> = None, Values::Path, Presence::Optional("`test_fraction` of `train`");
        /// Fraction of `train`, at its end, held out for validation.
        valid_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0.1, or 0 if `valid` is set");
        /// Fraction of `train`, after the validation split, held out for testing.
        test_fraction: Option<f64> = None, PROBABILITY, Presence::Optional("0");
    }
}

names! {
    /// Source and target language.
    pub enum Direction: "direction" {
        /// Chinese to English.
        ChineseToEnglish = "zh-en",
        /// English to Chinese.
        EnglishToChinese = "en-zh",
    }

    /// Format of labelled text.
    pub enum Format: "format" {
        /// By file extension: `.tsv` or `.txt`, `.csv`, `.jsonl`, else a folder or archive.
        Auto = "auto",
        /// Lines with a class, a tab and a text.
        Tsv = "tsv",
        /// Comma-separated values with a header row; quoted fields may contain commas and line breaks, and an unclosed quote is an error.
        Csv = "csv",
        /// One JSON object per line.
        JsonLines = "json-lines",
        /// One folder per class, one file per text.
        Folders = "folders",
    }

    /// Sentence splitting.
    pub enum Sentences: "sentence splitting" {
        /// At line breaks.
        Lines = "lines",
        /// After sentence-final punctuation.
        Punctuation = "punctuation",
    }
}

/// Default validation fraction of [`Parallel`], [`Labelled`] and [`Plain`].
pub(crate) const DEFAULT_VALID_SHARE: f64 = 0.1;

/// One file, or two line-aligned ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Files {
    /// A file with columns, or one file for source and target.
    One(PathBuf),
    /// Source and target.
    Two([PathBuf; 2]),
}

/// The task that a dataset is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Source and target texts.
    SequenceToSequence,
    /// Texts and classes.
    Classification,
    /// Text without labels.
    LanguageModelling,
}

impl Recall {
    /// Number of different keys.
    pub fn num_symbols(&self) -> usize {
        self.symbols.unwrap_or(self.max_keys.max(LETTERS))
    }

    /// Minimum number of pairs of a training example.
    pub fn train_min_keys(&self) -> usize {
        self.train_min_keys.unwrap_or(self.min_keys)
    }
}

/// Letters of the alphabet.
const LETTERS: usize = 26;

impl Data {
    /// The tasks that it can be used for.
    pub fn tasks(&self) -> &'static [Task] {
        match self {
            Self::Copy(_)
            | Self::Reverse(_)
            | Self::Sort(_)
            | Self::Dates(_)
            | Self::Phrases(_)
            | Self::Parallel(_) => &[Task::SequenceToSequence],
            Self::Recall(_) => &[Task::SequenceToSequence, Task::Classification],
            Self::ListOps(_) | Self::Documents(_) | Self::Labelled(_) => &[Task::Classification],
            Self::Plain(_) => &[Task::LanguageModelling],
        }
    }

    /// Whether it is synthetic, with all words separated by spaces.
    pub(crate) fn is_synthetic(&self) -> bool {
        self.generated().is_some()
    }

    /// Whether its texts can be split into sentences.
    pub fn has_sentences(&self) -> bool {
        matches!(self, Self::Documents(_) | Self::Labelled(_))
    }
}
