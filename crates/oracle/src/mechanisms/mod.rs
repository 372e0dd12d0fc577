//! Definitions of all mechanisms, one file each.
//!
//! Patterns and formulas are implemented independently of the crates that they check.

use zoo_spec::{Lsh, MechanismConfig, for_each_mechanism};

use crate::formula::Formula;
use crate::lsh::directions;
use crate::mask::Mask;
use crate::problem::Problem;

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
    /// Number of elements.
    pub fn num_elements(self) -> usize {
        match self {
            Self::Directions { count, d_head, .. } => count * d_head,
            Self::HashDirections {
                hashing,
                seq,
                d_head,
            } => {
                let [hashes, each] = directions(seq, hashing.bucket);
                hashing.rounds * hashes * each * d_head
            }
            Self::Hashes { hashing, queries } => hashing.rounds * queries,
            Self::Vector { heads, d_head } => heads * d_head,
            Self::Matrix { heads, d_head } => heads * d_head * d_head,
        }
    }
}

/// The definition of a mechanism.
pub(crate) trait Definition {
    /// `problem` as this mechanism solves it: with its mask, formula and parameters. `None` if it
    /// does not accept the problem.
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.clone())
    }

    /// Number of key and value heads for `heads` query heads, if the mechanism determines it.
    /// Independent of `zoo-spec`, which it checks.
    fn kv_heads(&self, _heads: usize) -> Option<usize> {
        None
    }
}

/// Source of parameters.
pub(crate) type Parameters<'a> = dyn Fn(Parameter) -> Vec<f32> + 'a;

macro_rules! registry {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $( mod $module; )+

        fn definition(mechanism: &MechanismConfig) -> &dyn Definition {
            match mechanism {
                $( MechanismConfig::$type(mechanism) => mechanism, )+
            }
        }
    };
}

for_each_mechanism!(registry);

impl Problem {
    /// This problem as a mechanism solves it: with its mask, formula and `parameters`. `None` if
    /// the mechanism does not accept the problem.
    pub fn with_mechanism(
        &self,
        mechanism: &MechanismConfig,
        parameters: impl Fn(Parameter) -> Vec<f32>,
    ) -> Option<Self> {
        definition(mechanism).apply(self, &parameters)
    }

    /// The problem with a second mask: visible keys are visible in both.
    fn and_mask(&self, other: Mask) -> Self {
        self.clone().with_mask(match &self.mask {
            Mask::Full => other,
            mask => Mask::All(vec![mask.clone(), other]),
        })
    }

    /// The problem with a linear-attention formula, which computes no scores. `None` if the problem
    /// modifies scores or masks single pairs.
    fn with_linear_formula(&self, formula: Formula) -> Option<Self> {
        let has_plain_scores =
            self.softcap.is_none() && !self.alibi && self.bias.is_none() && self.dropout.is_none();
        (has_plain_scores && is_key_mask(&self.mask)).then(|| self.clone().with_formula(formula))
    }

    fn vector_parameter(&self) -> Parameter {
        Parameter::Vector {
            heads: self.heads,
            d_head: self.d_head,
        }
    }

    fn matrix_parameter(&self) -> Parameter {
        Parameter::Matrix {
            heads: self.heads,
            d_head: self.d_head,
        }
    }
}

/// Number of key and value heads for `heads` query heads, if the mechanism determines it.
pub fn expected_kv_heads(mechanism: &MechanismConfig, heads: usize) -> Option<usize> {
    definition(mechanism).kv_heads(heads)
}

/// The square root of `n` rounded to the nearest integer, at least 1. `r` is nearest while
/// `n <= (r + 1/2)²`, whose integer part is `r² + r`.
fn rounded_sqrt(n: usize) -> usize {
    let is_below = |root: &usize| root * root + root < n;
    1 + (1..n).take_while(is_below).count()
}

fn symmetric_window(window: usize) -> Mask {
    Mask::Window {
        left: window,
        right: window,
    }
}

/// Whether a mask is causal.
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
    use zoo_spec::{GroupedQuery, Mechanism, SlidingWindow};

    fn zeros(parameter: Parameter) -> Vec<f32> {
        vec![0.0; parameter.num_elements()]
    }

    #[test]
    fn square_roots_are_rounded_to_nearest() {
        // 2.5² is 6.25, 3.5² is 12.25.
        let expected = [
            (1, 1),
            (2, 1),
            (3, 2),
            (6, 2),
            (7, 3),
            (12, 3),
            (13, 4),
            (256, 16),
        ];
        for (n, root) in expected {
            assert_eq!(rounded_sqrt(n), root, "of {n}");
        }
    }

    #[test]
    fn at_least_four_query_heads_share_a_kv_head() {
        let grouped = GroupedQuery { n_heads_kv: None }.into();
        let groups = [1, 3, 4, 6, 8, 12, 20].map(|heads| expected_kv_heads(&grouped, heads));
        assert_eq!(groups, [1, 1, 1, 1, 2, 3, 5].map(Some));
        assert_eq!(expected_kv_heads(&Mechanism::MultiQuery.into(), 8), Some(1));
        assert_eq!(expected_kv_heads(&Mechanism::Flash.into(), 8), None);
    }

    #[test]
    fn sliding_window_reduces_density() {
        let problem = Problem::new("full", [1, 1, 9, 9, 2]);
        let window = SlidingWindow { window: 1 }.into();
        let problem = problem.with_mechanism(&window, zeros).expect("accepted");
        assert_eq!(problem.density(), 25.0 / 81.0);
    }

    #[test]
    fn linear_attention_rejects_score_modifications() {
        let linear = Mechanism::Linear.into();
        let accepts = |problem: Problem| problem.with_mechanism(&linear, zeros).is_some();
        let plain = Problem::new("plain", [1, 1, 4, 4, 2]);
        assert!(accepts(plain.clone()));
        assert!(!accepts(plain.clone().with_softcap(1.0)));
        assert!(!accepts(plain.clone().with_mask(Mask::Block(2))));
        let retention = Mechanism::Retention.into();
        assert!(plain.with_mechanism(&retention, zeros).is_none());
    }
}
