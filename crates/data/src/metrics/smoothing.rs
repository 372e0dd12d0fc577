//! What BLEU does about orders without a match, by sacreBLEU's names.
//!
//! Chen and Cherry, [A Systematic Comparison of Smoothing Techniques for Sentence-Level
//! BLEU](https://aclanthology.org/W14-3346), 2014.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zoo_spec::UnknownWord;

use super::MetricError;

/// What becomes of a precision of which nothing matched; without this, it makes the whole
/// score zero.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Smoothing {
    /// The first such counts half a match, the next a quarter, and so on.
    #[default]
    Exp,
    /// It counts this many matches instead of none.
    Floor(f64),
    /// This many matches are added to every order but the first, with or without matches.
    AddK(f64),
    /// It stays zero.
    None,
}

impl Smoothing {
    /// All of them, with sacreBLEU's defaults, in the order they are shown.
    pub const ALL: [Self; 4] = [Self::Exp, Self::Floor(0.1), Self::AddK(1.0), Self::None];

    /// The word without its number.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exp => "exp",
            Self::Floor(_) => "floor",
            Self::AddK(_) => "add-k",
            Self::None => "none",
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Self::Floor(number) | Self::AddK(number) => Some(number),
            Self::Exp | Self::None => None,
        }
    }

    /// As sacreBLEU's signature has it: always two digits.
    pub(crate) fn in_signature(self) -> String {
        match self.number() {
            Some(number) => format!("{}[{number:.2}]", self.word()),
            None => self.word().to_owned(),
        }
    }

    pub(crate) fn check(self) -> Result<(), MetricError> {
        match self.number() {
            Some(number) if !(number.is_finite() && number > 0.0) => Err(MetricError::Range {
                field: "the number of the smoothing",
                allowed: "above 0",
                got: number.to_string(),
            }),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Smoothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self.number() {
            Some(number) => write!(f, "[{number}]"),
            None => Ok(()),
        }
    }
}

/// A smoothing that nobody knows.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseSmoothingError {
    /// The word is none of them.
    #[error(transparent)]
    Word(#[from] UnknownWord),
    /// The number in brackets is none, or there should be none.
    #[error("smoothing \"{got}\": write {word}, {allowed}")]
    Number {
        /// What was written.
        got: String,
        /// The word before the brackets.
        word: &'static str,
        /// What may follow it.
        allowed: &'static str,
    },
}

impl FromStr for Smoothing {
    type Err = ParseSmoothingError;

    /// Reads `exp`, `floor`, `floor[0.05]` and so on.
    fn from_str(text: &str) -> Result<Self, ParseSmoothingError> {
        let (word, brackets) = match text.split_once('[') {
            Some((word, rest)) => (word, Some(rest)),
            None => (text, None),
        };
        let known = Self::ALL.into_iter().find(|known| known.word() == word);
        let known = known.ok_or_else(|| {
            UnknownWord::new("smoothing of BLEU", word, Self::ALL.map(Self::word))
        })?;
        let Some(brackets) = brackets else {
            return Ok(known);
        };
        let number = brackets
            .strip_suffix(']')
            .and_then(|text| text.parse().ok());
        let wrong = |allowed| ParseSmoothingError::Number {
            got: text.to_owned(),
            word: known.word(),
            allowed,
        };
        let or_number = "alone or with a number above 0 in brackets, as in [0.5]";
        let read = match (known, number) {
            (Self::Floor(_), Some(number)) => Self::Floor(number),
            (Self::AddK(_), Some(number)) => Self::AddK(number),
            (Self::Exp | Self::None, _) => return Err(wrong("which takes no number")),
            (_, None) => return Err(wrong(or_number)),
        };
        read.check().map_err(|_| wrong(or_number))?;
        Ok(read)
    }
}

impl Serialize for Smoothing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Smoothing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        let more = [Smoothing::Floor(0.05), Smoothing::AddK(2.5)];
        for smoothing in Smoothing::ALL.into_iter().chain(more) {
            assert_eq!(smoothing.to_string().parse(), Ok(smoothing));
        }
        assert_eq!("add-k".parse(), Ok(Smoothing::AddK(1.0)));
        assert_eq!(Smoothing::Floor(0.1).in_signature(), "floor[0.10]");
    }

    #[test]
    fn what_cannot_be_read_says_what_can() {
        let said = |text: &str| text.parse::<Smoothing>().unwrap_err().to_string();
        assert!(said("flor").contains("did you mean floor?"));
        for text in [
            "floor[]",
            "floor[a]",
            "floor[0.1",
            "floor[-1]",
            "add-k[0]",
            "floor[nan]",
        ] {
            assert!(
                said(text).contains("a number above 0 in brackets"),
                "{text}"
            );
        }
        let none = "smoothing \"exp[2]\": write exp, which takes no number";
        assert_eq!(said("exp[2]"), none);
    }
}
