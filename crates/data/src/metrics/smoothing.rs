//! What BLEU does about orders without a match, by sacreBLEU's names.
//!
//! Chen and Cherry, [A Systematic Comparison of Smoothing Techniques for Sentence-Level
//! BLEU](https://aclanthology.org/W14-3346), 2014.

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
    fn number(self) -> Option<f64> {
        match self {
            Self::Floor(number) | Self::AddK(number) => Some(number),
            Self::Exp | Self::None => None,
        }
    }

    /// As sacreBLEU's signature has it: always two digits.
    pub(crate) fn in_signature(self) -> String {
        match self {
            Self::Exp => "exp".to_owned(),
            Self::Floor(number) => format!("floor[{number:.2}]"),
            Self::AddK(number) => format!("add-k[{number:.2}]"),
            Self::None => "none".to_owned(),
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
