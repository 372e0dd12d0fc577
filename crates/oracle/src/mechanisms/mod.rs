//! Definitions of all mechanisms, independent of the crates that they check.

mod definitions;

use zoo_spec::{Lsh, MechanismConfig};

use crate::lsh::directions;
use crate::mask::Mask;

/// Parameters of a mechanism that the oracle takes as given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Parameter {
    /// `[count, d_head]`: projection directions of random features.
    Directions {
        /// Number of directions.
        count: usize,
        /// Seed of the directions.
        seed: u64,
        /// Head dimension.
        d_head: usize,
    },
    /// `[rounds, hashes, each, d_head]`: directions that queries are hashed with. If a hash is a
    /// pair, the directions of its first part precede those of the second.
    HashDirections {
        /// Bucket size, rounds and seed.
        hashing: Lsh,
        /// Sequence length.
        seq: usize,
        /// Head dimension.
        d_head: usize,
    },
    /// `[batch, heads, seq, rounds]`: hashes of the problem's queries.
    Hashes {
        /// Bucket size, rounds and seed.
        hashing: Lsh,
        /// Number of queries over all examples and heads.
        queries: usize,
    },
    /// `[heads]`: scores of sinks.
    Sinks {
        /// Query heads.
        heads: usize,
    },
    /// `[heads, num_buckets]`: biases of relative positions.
    Table {
        /// Query heads.
        heads: usize,
        /// Number of buckets.
        num_buckets: usize,
    },
    /// `[batch, heads, seq, width]`: logarithms of the decays of positions, at most 0.
    LogDecays {
        /// Batch size.
        batch: usize,
        /// Query heads, or key and value heads of a recurrence.
        heads: usize,
        /// Number of positions.
        seq: usize,
        /// Decays of a head at a position.
        width: usize,
    },
    /// `[batch, heads, seq, 1]`: the strengths of positions, from 0 to 1.
    Strengths {
        /// Batch size.
        batch: usize,
        /// Key and value heads.
        heads: usize,
        /// Number of positions.
        seq: usize,
    },
    /// `[batch, heads, seq, 3]`: the gates of branches of positions, from 0 to 1.
    BranchGates {
        /// Batch size.
        batch: usize,
        /// Query heads.
        heads: usize,
        /// Number of positions.
        seq: usize,
    },
    /// `[4, half]`: vectors of the λ of differential attention.
    Differential {
        /// Half of the head dimension.
        half: usize,
    },
    /// `[2, rank, length]`: projections of keys and of values along the sequence.
    Projections {
        /// Projected keys.
        rank: usize,
        /// Columns.
        length: usize,
    },
    /// `[heads, d_head]`: vectors of an additive score or of predicted positions.
    Vector {
        /// Query heads.
        heads: usize,
        /// Head dimension.
        d_head: usize,
    },
    /// `[heads, d_head, d_head]`: matrices of a multiplicative score or of predicted positions.
    Matrix {
        /// Query heads.
        heads: usize,
        /// Head dimension.
        d_head: usize,
    },
}

impl Parameter {
    /// Shape of the values.
    pub fn shape(self) -> Vec<usize> {
        match self {
            Self::Directions { count, d_head, .. } => vec![count, d_head],
            Self::HashDirections {
                hashing,
                seq,
                d_head,
            } => {
                let [hashes, each] = directions(seq, hashing.bucket_size);
                vec![hashing.n_hashes, hashes, each, d_head]
            }
            Self::Hashes { hashing, queries } => vec![queries, hashing.n_hashes],
            Self::Sinks { heads } => vec![heads],
            Self::Table { heads, num_buckets } => vec![heads, num_buckets],
            Self::LogDecays {
                batch,
                heads,
                seq,
                width,
            } => vec![batch, heads, seq, width],
            Self::Strengths { batch, heads, seq } => vec![batch, heads, seq, 1],
            Self::BranchGates { batch, heads, seq } => vec![batch, heads, seq, 3],
            Self::Differential { half } => vec![4, half],
            Self::Projections { rank, length } => vec![2, rank, length],
            Self::Vector { heads, d_head } => vec![heads, d_head],
            Self::Matrix { heads, d_head } => vec![heads, d_head, d_head],
        }
    }

    /// Number of elements.
    pub fn num_elements(self) -> usize {
        self.shape().into_iter().product()
    }
}

/// Number of key and value heads for `heads` query heads, if the mechanism determines it.
/// Independent of `zoo-spec`, which it checks.
pub fn expected_kv_heads(mechanism: &MechanismConfig, heads: usize) -> Option<usize> {
    match mechanism {
        MechanismConfig::MultiQuery(_) | MechanismConfig::Mla(_) => Some(1),
        MechanismConfig::GroupedQuery(config) => {
            // The largest divisor with at least four query heads per KV head, or 1.
            let is_shared = |groups: &usize| heads.is_multiple_of(*groups) && heads / groups >= 4;
            let shared = || (1..=heads).filter(is_shared).max();
            config.n_heads_kv.or_else(shared).or(Some(1))
        }
        _ => None,
    }
}

pub(crate) fn is_causal(mask: &Mask) -> bool {
    match mask {
        Mask::Causal => true,
        Mask::All(parts) => parts.iter().any(is_causal),
        _ => false,
    }
}

/// Whether a mask depends on keys only, apart from being causal.
pub(crate) fn is_key_mask(mask: &Mask) -> bool {
    match mask {
        Mask::Full | Mask::Causal | Mask::KeyLengths(_) | Mask::KeyPadding(_) => true,
        Mask::All(parts) => parts.iter().all(is_key_mask),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_spec::{GroupedQuery, Mechanism};

    #[test]
    fn at_least_four_query_heads_share_a_kv_head() {
        let grouped = GroupedQuery { n_heads_kv: None }.into();
        let groups = [1, 3, 4, 6, 8, 12, 20].map(|heads| expected_kv_heads(&grouped, heads));
        assert_eq!(groups, [1, 1, 1, 1, 2, 3, 5].map(Some));
        assert_eq!(expected_kv_heads(&Mechanism::MultiQuery.into(), 8), Some(1));
        assert_eq!(expected_kv_heads(&Mechanism::Flash.into(), 8), None);
    }
}
