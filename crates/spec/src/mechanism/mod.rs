//! The attention mechanisms by their words, and what is to be known of each.

mod config;
mod table;

use std::fmt;
use std::str::FromStr;

pub use self::config::{LinearFeatures, MechanismConfig};
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
    /// The same, all query heads over one head of keys and values.
    MultiQuery,
    /// The same over a few of them.
    GroupedQuery,
    /// Attention to products as they are.
    Dot,
    /// Products through a matrix that is learned.
    Multiplicative,
    /// The score of a small network that is learned.
    Additive,
    /// One key alone, the best or one drawn.
    Hard,
    /// Only neighbours are seen.
    SlidingWindow,
    /// Only neighbours are seen, the first query being level with the first key.
    LocalM,
    /// Only keys around a place that is predicted are seen, the nearer the more.
    LocalP,
    /// Only the own block is seen.
    Block,
    /// Neighbours, and every so many places one further away.
    Strided,
    /// The own block, and the last places of every block.
    Fixed,
    /// Neighbours, and a few places for everyone.
    Longformer,
    /// Neighbours, a few places for everyone, and a few at random, by blocks.
    BigBird,
    /// Keys that hash as the query does.
    Lsh,
    /// Products of features instead of a softmax.
    Linear,
    /// The same with random features whose products are, on average, the softmax's.
    Performer,
    /// Products that fade with the distance.
    Retention,
}

/// What is to be known of a mechanism, for tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct About {
    /// What it computes, in a few words.
    pub computes: &'static str,
    /// How its time grows with the length.
    pub time: &'static str,
    /// How the memory it takes grows, beyond what goes in and comes out.
    pub memory: &'static str,
    /// Whether the result is that of softmax attention over what is seen.
    pub exactness: &'static str,
    /// Where it comes from: first author, year, address.
    pub paper: (&'static str, &'static str),
}

impl Mechanism {
    /// Every mechanism, in the order they are shown.
    pub const ALL: [Self; 20] = [
        Self::Standard,
        Self::Flash,
        Self::MultiQuery,
        Self::GroupedQuery,
        Self::Dot,
        Self::Multiplicative,
        Self::Additive,
        Self::Hard,
        Self::SlidingWindow,
        Self::LocalM,
        Self::LocalP,
        Self::Block,
        Self::Strided,
        Self::Fixed,
        Self::Longformer,
        Self::BigBird,
        Self::Lsh,
        Self::Linear,
        Self::Performer,
        Self::Retention,
    ];

    /// The word people write.
    pub fn word(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Flash => "flash",
            Self::MultiQuery => "multi-query",
            Self::GroupedQuery => "grouped-query",
            Self::Dot => "dot",
            Self::Multiplicative => "multiplicative",
            Self::Additive => "additive",
            Self::Hard => "hard",
            Self::SlidingWindow => "sliding-window",
            Self::LocalM => "local-m",
            Self::LocalP => "local-p",
            Self::Block => "block",
            Self::Strided => "strided",
            Self::Fixed => "fixed",
            Self::Longformer => "longformer",
            Self::BigBird => "bigbird",
            Self::Lsh => "lsh",
            Self::Linear => "linear",
            Self::Performer => "performer",
            Self::Retention => "retention",
        }
    }

    /// What else it is called.
    pub fn other_names(self) -> &'static [&'static str] {
        match self {
            Self::Flash => &["scaled-dot", "global"],
            Self::Multiplicative => &["general"],
            Self::Additive => &["concat"],
            Self::SlidingWindow => &["local"],
            _ => &[],
        }
    }

    /// Whether it holds its weights, and can return them.
    pub fn holds_weights(self) -> bool {
        matches!(
            self,
            Self::Standard | Self::Additive | Self::Hard | Self::LocalP
        )
    }

    /// What is to be known of it.
    pub fn about(self) -> About {
        const EXACT: &str = "exact";
        let vaswani = ("Vaswani 2017", "https://arxiv.org/abs/1706.03762");
        let luong = ("Luong 2015", "https://arxiv.org/abs/1508.04025");
        let child = ("Child 2019", "https://arxiv.org/abs/1904.10509");
        match self {
            Self::Standard => About {
                computes: "softmax attention, every weight held and returned",
                time: "n²",
                memory: "n²",
                exactness: EXACT,
                paper: vaswani,
            },
            Self::Flash => About {
                computes: "the same, tile by tile, forward and backward",
                time: "n²",
                memory: "n",
                exactness: EXACT,
                paper: ("Dao 2022", "https://arxiv.org/abs/2205.14135"),
            },
            Self::MultiQuery => About {
                computes: "`flash` with all query heads over one head of keys and values",
                time: "n²",
                memory: "n",
                exactness: EXACT,
                paper: ("Shazeer 2019", "https://arxiv.org/abs/1911.02150"),
            },
            Self::GroupedQuery => About {
                computes: "the same with a few heads of keys and values",
                time: "n²",
                memory: "n",
                exactness: EXACT,
                paper: ("Ainslie 2023", "https://arxiv.org/abs/2305.13245"),
            },
            Self::Dot => About {
                computes: "softmax of products as they are, not divided by sqrt(d_head)",
                time: "n²",
                memory: "n",
                exactness: EXACT,
                paper: luong,
            },
            Self::Multiplicative => About {
                computes: "softmax of q·W·k with a matrix W that is learned",
                time: "n²",
                memory: "n",
                exactness: "with W between",
                paper: luong,
            },
            Self::Additive => About {
                computes: "softmax of v·tanh(W₁q + W₂k), all learned",
                time: "n²",
                memory: "n²",
                exactness: "its own",
                paper: ("Bahdanau 2014", "https://arxiv.org/abs/1409.0473"),
            },
            Self::Hard => About {
                computes: "the value of one key: the best, or in training one drawn by its weight",
                time: "n²",
                memory: "n²",
                exactness: "its own",
                paper: ("Xu 2015", "https://arxiv.org/abs/1502.03044"),
            },
            Self::SlidingWindow => About {
                computes: "softmax over the w neighbours on either side",
                time: "n·w",
                memory: "n",
                exactness: EXACT,
                paper: ("Beltagy 2020", "https://arxiv.org/abs/2004.05150"),
            },
            Self::LocalM => About {
                computes: "softmax over the w neighbours, the first query level with the first key",
                time: "n·w",
                memory: "n",
                exactness: EXACT,
                paper: luong,
            },
            Self::LocalP => About {
                computes: "softmax over the w neighbours of a place that is predicted, the nearer the more",
                time: "n²",
                memory: "n²",
                exactness: "its own",
                paper: luong,
            },
            Self::Block => About {
                computes: "softmax over the own block of w places",
                time: "n·w",
                memory: "n",
                exactness: EXACT,
                paper: ("Qiu 2019", "https://arxiv.org/abs/1911.02972"),
            },
            Self::Strided => About {
                computes: "softmax over the s neighbours and every s-th place, s = sqrt(n)",
                time: "n·sqrt(n); n² with dropout, bias, ALiBi, lengths",
                memory: "n",
                exactness: EXACT,
                paper: child,
            },
            Self::Fixed => About {
                computes: "softmax over the own block and the last c places of every block of sqrt(n)",
                time: "n·sqrt(n)·c; n² with dropout, bias, ALiBi, lengths",
                memory: "n",
                exactness: EXACT,
                paper: child,
            },
            Self::Longformer => About {
                computes: "softmax over the w neighbours and g places that all see and that see all",
                time: "n·(w + g)",
                memory: "n",
                exactness: EXACT,
                paper: ("Beltagy 2020", "https://arxiv.org/abs/2004.05150"),
            },
            Self::BigBird => About {
                computes: "softmax over neighbouring, global and random blocks",
                time: "n",
                memory: "n",
                exactness: EXACT,
                paper: ("Zaheer 2020", "https://arxiv.org/abs/2007.14062"),
            },
            Self::Lsh => About {
                computes: "softmax over the keys that hash as the query does, up to 2·w in each of r rounds",
                time: "n·r·(w + sqrt(n/w))",
                memory: "n·r·w",
                exactness: "with unit queries for keys",
                paper: ("Kitaev 2020", "https://arxiv.org/abs/2001.04451"),
            },
            Self::Linear => About {
                computes: "products of features, elu(x) + 1 or relu, instead of a softmax",
                time: "n",
                memory: "n",
                exactness: "its own",
                paper: ("Katharopoulos 2020", "https://arxiv.org/abs/2006.16236"),
            },
            Self::Performer => About {
                computes: "random features whose products are, on average, the softmax's",
                time: "n",
                memory: "n",
                exactness: "approximate",
                paper: ("Choromanski 2020", "https://arxiv.org/abs/2009.14794"),
            },
            Self::Retention => About {
                computes: "products that fade with the distance, causal",
                time: "n",
                memory: "n",
                exactness: "its own",
                paper: ("Sun 2023", "https://arxiv.org/abs/2307.08621"),
            },
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
        let is_it =
            |mechanism: &Self| mechanism.word() == word || mechanism.other_names().contains(&word);
        Self::ALL.into_iter().find(is_it).ok_or_else(|| {
            let words = Self::ALL.map(Self::word).into_iter();
            let others = Self::ALL.into_iter().flat_map(Self::other_names);
            UnknownWord::new("mechanism", word, words.chain(others.copied()))
        })
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
    fn every_other_name_reads_as_what_it_names() {
        let mut names = Vec::new();
        for mechanism in Mechanism::ALL {
            for name in mechanism.other_names() {
                assert_eq!(name.parse(), Ok(mechanism));
                names.push(*name);
            }
        }
        // A name that is also a word would never be reached.
        for mechanism in Mechanism::ALL {
            assert!(!names.contains(&mechanism.word()), "{mechanism}");
        }
        for name in ["scaled-dot", "global", "local", "general", "concat"] {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_wrong_word_gets_the_nearest() {
        let error = "globl".parse::<Mechanism>().unwrap_err();
        assert_eq!(error.nearest(), Some("global"));
        let error = "standrad".parse::<Mechanism>().unwrap_err();
        assert_eq!(error.nearest(), Some("standard"));
    }
}
