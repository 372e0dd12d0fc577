//! A mechanism with its sizes.

use std::num::NonZeroUsize;

use serde::Serialize;

use super::Mechanism;

/// A mechanism and its sizes: the word alone, `"flash"`, takes the usual ones; a table,
/// `{ kind = "longformer", window = 256, global = 1 }`, says some or all.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum MechanismConfig {
    /// Softmax attention with every weight held.
    Standard,
    /// The same, tile by tile.
    Flash,
    /// The same, all query heads over one head of keys and values.
    MultiQuery,
    /// The same over a few of them.
    GroupedQuery {
        /// How many; none is a fourth of the query heads.
        #[serde(skip_serializing_if = "Option::is_none")]
        kv_heads: Option<usize>,
    },
    /// Attention to products as they are.
    Dot,
    /// Products through a learned matrix.
    Multiplicative,
    /// The score of a learned network.
    Additive,
    /// One key alone.
    Hard {
        /// What scores and noise are divided by for the gradient.
        temperature: f64,
        /// Which noise.
        seed: u64,
    },
    /// Neighbours alone.
    SlidingWindow {
        /// Keys seen on either side.
        window: usize,
    },
    /// The same from the first query and key on.
    LocalM {
        /// Keys seen on either side.
        window: usize,
    },
    /// Keys around a place that is predicted.
    LocalP {
        /// Keys seen on either side; twice the deviation of their weights.
        window: usize,
    },
    /// The own block alone.
    Block {
        /// Places in a block.
        size: usize,
    },
    /// Neighbours, and every so many places one further away.
    Strided {
        /// How many; none is the root of the number of keys.
        #[serde(skip_serializing_if = "Option::is_none")]
        stride: Option<usize>,
    },
    /// The own block, and the last places of every block.
    Fixed {
        /// Places in a block; none is the root of the number of keys.
        #[serde(skip_serializing_if = "Option::is_none")]
        block: Option<usize>,
        /// How many of each are for everyone.
        summary: usize,
    },
    /// Neighbours, and places for everyone.
    Longformer {
        /// Keys seen on either side.
        window: usize,
        /// Places at the beginning that see all and are seen by all.
        global: usize,
    },
    /// Neighbours, places for everyone, and some at random, by blocks.
    #[serde(rename = "bigbird")]
    BigBird {
        /// Places in a block.
        block: usize,
        /// Blocks seen on either side.
        neighbours: usize,
        /// Blocks at the beginning, and as many at the end, for everyone.
        global: usize,
        /// Blocks at random.
        random: usize,
        /// Which ones.
        seed: u64,
    },
    /// Keys that hash as the query does, keys being made of the queries.
    Lsh {
        /// Places that are sorted together.
        bucket: usize,
        /// How often they are sorted, by other hashes each time.
        rounds: usize,
        /// By which ones.
        seed: u64,
    },
    /// Products of features.
    Linear {
        /// Which features.
        features: LinearFeatures,
    },
    /// Products of random features.
    Performer {
        /// How many.
        features: usize,
        /// Which ones, to begin with.
        seed: u64,
        /// Training passes until others are drawn; none is never, and so is a zero in a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        redraw: Option<NonZeroUsize>,
    },
    /// Products that fade.
    Retention {
        /// Whether a layer normalises the result of each head at each position, as the paper's
        /// does: eq. 8 of [Sun et al.](https://arxiv.org/abs/2307.08621), without parameters.
        group_norm: bool,
    },
}

/// The features of linear attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinearFeatures {
    /// `elu(x) + 1`
    #[default]
    Elu1,
    /// `max(x, 0)` and a thousandth.
    Relu,
}

impl From<Mechanism> for MechanismConfig {
    /// With the usual sizes: those of the papers, or a window of 256.
    fn from(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Standard => Self::Standard,
            Mechanism::Flash => Self::Flash,
            Mechanism::MultiQuery => Self::MultiQuery,
            Mechanism::GroupedQuery => Self::GroupedQuery { kv_heads: None },
            Mechanism::Dot => Self::Dot,
            Mechanism::Multiplicative => Self::Multiplicative,
            Mechanism::Additive => Self::Additive,
            Mechanism::Hard => Self::Hard {
                temperature: 1.0,
                seed: 0,
            },
            Mechanism::SlidingWindow => Self::SlidingWindow { window: 256 },
            Mechanism::LocalM => Self::LocalM { window: 10 },
            Mechanism::LocalP => Self::LocalP { window: 10 },
            Mechanism::Block => Self::Block { size: 256 },
            Mechanism::Strided => Self::Strided { stride: None },
            // The least of the paper's, which found that a single one says too little.
            Mechanism::Fixed => Self::Fixed {
                block: None,
                summary: 8,
            },
            Mechanism::Longformer => Self::Longformer {
                window: 256,
                global: 1,
            },
            Mechanism::BigBird => Self::BigBird {
                block: 64,
                neighbours: 1,
                global: 1,
                random: 3,
                seed: 0,
            },
            Mechanism::Lsh => Self::Lsh {
                bucket: 64,
                rounds: 4,
                seed: 0,
            },
            Mechanism::Linear => Self::Linear {
                features: LinearFeatures::Elu1,
            },
            Mechanism::Performer => Self::Performer {
                features: 256,
                seed: 0,
                redraw: None,
            },
            // Off, so that what was trained without it stays what it is.
            Mechanism::Retention => Self::Retention { group_norm: false },
        }
    }
}

impl MechanismConfig {
    /// Which mechanism it is.
    pub fn mechanism(&self) -> Mechanism {
        match self {
            Self::Standard => Mechanism::Standard,
            Self::Flash => Mechanism::Flash,
            Self::MultiQuery => Mechanism::MultiQuery,
            Self::GroupedQuery { .. } => Mechanism::GroupedQuery,
            Self::Dot => Mechanism::Dot,
            Self::Multiplicative => Mechanism::Multiplicative,
            Self::Additive => Mechanism::Additive,
            Self::Hard { .. } => Mechanism::Hard,
            Self::SlidingWindow { .. } => Mechanism::SlidingWindow,
            Self::LocalM { .. } => Mechanism::LocalM,
            Self::LocalP { .. } => Mechanism::LocalP,
            Self::Block { .. } => Mechanism::Block,
            Self::Strided { .. } => Mechanism::Strided,
            Self::Fixed { .. } => Mechanism::Fixed,
            Self::Longformer { .. } => Mechanism::Longformer,
            Self::BigBird { .. } => Mechanism::BigBird,
            Self::Lsh { .. } => Mechanism::Lsh,
            Self::Linear { .. } => Mechanism::Linear,
            Self::Performer { .. } => Mechanism::Performer,
            Self::Retention { .. } => Mechanism::Retention,
        }
    }

    /// Key and value heads for so many query heads, where the mechanism says how many.
    pub fn kv_heads(&self, heads: usize) -> Option<usize> {
        match *self {
            Self::MultiQuery => Some(1),
            Self::GroupedQuery { kv_heads: None } => {
                let divides = |fewer: &usize| heads.is_multiple_of(*fewer);
                (1..=heads / 4).rev().find(divides).or(Some(1))
            }
            Self::GroupedQuery { kv_heads } => kv_heads,
            _ => None,
        }
    }

    /// Whether it can be computed one place after the other: what a place sees must not
    /// depend on how many there will be.
    pub fn can_decode(&self) -> bool {
        !matches!(
            self,
            Self::BigBird { .. }
                | Self::LocalP { .. }
                | Self::Strided { stride: None }
                | Self::Fixed { block: None, .. }
                | Self::Lsh { .. }
        )
    }

    /// The stride of [`Strided`](Self::Strided), or the block of [`Fixed`](Self::Fixed), for
    /// so many keys.
    pub fn stride(stride: Option<usize>, seq_k: usize) -> usize {
        stride.unwrap_or_else(|| (seq_k as f64).sqrt().round().max(1.0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_shared_by_as_many() {
        let grouped = MechanismConfig::from(Mechanism::GroupedQuery);
        let fewer = [8, 12, 6, 3, 1].map(|heads| grouped.kv_heads(heads));
        assert_eq!(fewer, [Some(2), Some(3), Some(1), Some(1), Some(1)]);
        let said = MechanismConfig::GroupedQuery { kv_heads: Some(4) };
        assert_eq!(said.kv_heads(8), Some(4));
        assert_eq!(MechanismConfig::Flash.kv_heads(8), None);
    }
}
