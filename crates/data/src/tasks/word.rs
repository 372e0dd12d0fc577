//! The tasks by the words people write for them.

use std::fmt;
use std::str::FromStr;

use zoo_spec::UnknownWord;

/// A task that needs no files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Symbols, again: `a c b` to `a c b`.
    Copy,
    /// Symbols from the last to the first: `a c b` to `b c a`.
    Reverse,
    /// Symbols in their order: `a c b` to `a b c`.
    Sort,
    /// Dates as people write them, to ISO 8601: `3rd of May 1998` to `1998-05-03`.
    Dates,
    /// The value of a key among others: `a 3 b 7 c 1 ? b` to `7`.
    Recall,
    /// Nested operations on digits, to classify by their value: `[MAX 2 9 [MIN 4 7 ] ]` is 9.
    ListOps,
    /// Documents whose class a few words in a few sentences tell.
    Documents,
    /// Everyday phrases, English and Chinese: `好久不见` to `long time no see`.
    Phrases,
}

impl Task {
    /// Every task, in the order they are shown.
    pub const ALL: [Self; 8] = [
        Self::Copy,
        Self::Reverse,
        Self::Sort,
        Self::Dates,
        Self::Recall,
        Self::ListOps,
        Self::Documents,
        Self::Phrases,
    ];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Reverse => "reverse",
            Self::Sort => "sort",
            Self::Dates => "dates",
            Self::Recall => "recall",
            Self::ListOps => "listops",
            Self::Documents => "documents",
            Self::Phrases => "phrases",
        }
    }

    /// Whether its examples have a class; the others are pairs.
    pub fn is_labelled(self) -> bool {
        matches!(self, Self::ListOps | Self::Documents)
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Task {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|task| task.word() == word)
            .ok_or_else(|| UnknownWord::new("task", word, Self::ALL.map(Self::word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for task in Task::ALL {
            assert_eq!(task.word().parse(), Ok(task));
        }
        let error = "revers".parse::<Task>().unwrap_err();
        assert_eq!(error.nearest(), Some("reverse"));
    }
}
