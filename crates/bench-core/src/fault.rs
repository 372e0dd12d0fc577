//! Cases that misbehave, for tests of what becomes of them.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zoo_spec::UnknownWord;

/// A case that misbehaves on purpose, so that tests can show what becomes of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Never ends.
    Hang,
    /// Takes all the memory there is.
    Exhaust,
    /// Computes something else.
    Wrong,
    /// A model whose results are one percent off.
    Inexact,
    /// Ends with a panic.
    Crash,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Hang,
        Self::Exhaust,
        Self::Wrong,
        Self::Inexact,
        Self::Crash,
    ];

    /// The word it is asked for by.
    pub fn word(self) -> &'static str {
        match self {
            Self::Hang => "hang",
            Self::Exhaust => "exhaust",
            Self::Wrong => "wrong",
            Self::Inexact => "inexact",
            Self::Crash => "crash",
        }
    }
}

impl FromStr for Fault {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|fault| fault.word() == word)
            .ok_or_else(|| UnknownWord::new("fault", word, Self::ALL.map(Self::word)))
    }
}
