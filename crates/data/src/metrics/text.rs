//! Letters and blanks as Python's strings have them, since sacreBLEU's scores depend on both.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zoo_spec::UnknownWord;

/// Whether `The` and `the` are the same word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// They are not.
    #[default]
    Mixed,
    /// They are: everything is made lower case before it is compared.
    Lower,
}

impl Case {
    /// Both, in the order they are shown.
    pub const ALL: [Self; 2] = [Self::Mixed, Self::Lower];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Lower => "lower",
        }
    }

    /// The word in sacreBLEU's signatures.
    pub(crate) fn in_signature(self) -> &'static str {
        match self {
            Self::Mixed => "mixed",
            Self::Lower => "lc",
        }
    }

    pub(crate) fn apply(self, line: &str) -> String {
        match self {
            Self::Mixed => line.to_owned(),
            Self::Lower => line.to_lowercase(),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Case {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|case| case.word() == word)
            .ok_or_else(|| UnknownWord::new("case", word, Self::ALL.map(Self::word)))
    }
}

/// What Python's `str.split` parts words at: Unicode's white space, and four control
/// characters that separate records, which Rust does not count.
pub(crate) fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// What lies between blanks.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_blank).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lie_between_blanks_of_any_kind() {
        let line = " a\u{3000}b\u{1d}c\u{a0}\td\u{200b}e ";
        assert_eq!(
            words(line).collect::<Vec<_>>(),
            ["a", "b", "c", "d\u{200b}e"]
        );
        assert_eq!(words(" \n ").count(), 0);
    }

    #[test]
    fn every_word_reads_back() {
        for case in Case::ALL {
            assert_eq!(case.word().parse(), Ok(case));
        }
        let error = "lowre".parse::<Case>().unwrap_err();
        assert_eq!(error.nearest(), Some("lower"));
    }
}
