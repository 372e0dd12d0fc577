//! The attention mechanisms by their words.

use std::fmt;
use std::str::FromStr;

use crate::UnknownWord;

/// A mechanism, chosen by the word people write for it. `zoo-attention` has a
/// room for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mechanism {
    /// Softmax attention with every weight held in memory.
    #[default]
    Standard,
    /// The same, computed tile by tile; memory grows with the length alone.
    Flash,
}

impl Mechanism {
    /// Every mechanism, in the order they are shown.
    pub const ALL: [Self; 2] = [Self::Standard, Self::Flash];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Flash => "flash",
        }
    }

    /// What it computes, in a few words.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Standard => "softmax attention, every weight held and returned",
            Self::Flash => "the same, tile by tile; memory grows with the length alone",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Mechanism {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.word() == word)
            .ok_or_else(|| UnknownWord::new("mechanism", word, Self::ALL.map(Self::word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.word().parse(), Ok(mechanism));
        }
    }

    #[test]
    fn a_wrong_word_gets_the_nearest() {
        let error = "standrad".parse::<Mechanism>().unwrap_err();
        assert_eq!(error.nearest(), Some("standard"));
    }
}
