//! What each mechanism computes, one file for each of them.
//!
//! Nothing here is shared with the crates that it checks: patterns and formulas are written a
//! second time.

use zoo_spec::{Lsh, MechanismConfig, for_each_mechanism};

use crate::formula::Formula;
use crate::hashed::directions;
use crate::mask::Mask;
use crate::problem::Problem;

/// Numbers that are a mechanism's own choice, and not for the oracle to judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Parameter {
    /// `[count, d_head]`: the directions of random features.
    Directions {
        /// How many.
        count: usize,
        /// Which ones.
        seed: u64,
        /// Numbers in each.
        d_head: usize,
    },
    /// `[rounds, hashes, each, d_head]`: the directions that queries are hashed by, where a
    /// hash is a pair those of one and then of the other.
    HashDirections {
        /// Chunks, rounds and the seed.
        hashing: Lsh,
        /// Positions.
        seq: usize,
        /// Numbers in each.
        d_head: usize,
    },
    /// `[batch, heads, seq, rounds]`: the hashes that came of it, of the queries of the
    /// problem.
    Hashes {
        /// Chunks, rounds and the seed.
        hashing: Lsh,
        /// Queries of all examples and heads together.
        queries: usize,
    },
    /// `[heads, d_head]`: the vectors of an additive score or of predicted places.
    Vector {
        /// Query heads.
        heads: usize,
        /// Numbers in each.
        d_head: usize,
    },
    /// `[heads, d_head, d_head]`: the matrices of a multiplicative score or of predicted
    /// places.
    Matrix {
        /// Query heads.
        heads: usize,
        /// Rows and columns.
        d_head: usize,
    },
}

impl Parameter {
    /// Numbers in it.
    pub fn count(self) -> usize {
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
    /// The problem that it solves when it is given this one: with fewer visible keys, or another
    /// formula, with `parameters` of its own. `None` if it does not accept the problem.
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem>;

    /// Its key and value heads for `heads` query heads, if it determines them; not those of
    /// `zoo-spec`, which are what is checked.
    fn kv_heads(&self, _heads: usize) -> Option<usize> {
        None
    }
}

/// Where parameters come from.
pub(crate) type Parameters<'a> = dyn Fn(Parameter) -> Vec<f32> + 'a;

macro_rules! registry {
    ($($module:ident::$type:ident),+ $(,)?) => {
        $( mod $module; )+

        fn of(mechanism: &MechanismConfig) -> &dyn Definition {
            match mechanism {
                $( MechanismConfig::$type(mechanism) => mechanism, )+
            }
        }
    };
}

for_each_mechanism!(registry);

impl Problem {
    /// The problem that a mechanism solves when it is given this one: with fewer visible keys, or
    /// another formula, with `parameters` of its own. `None` if it does not accept the problem.
    pub fn given_to(
        &self,
        mechanism: &MechanismConfig,
        parameters: impl Fn(Parameter) -> Vec<f32>,
    ) -> Option<Self> {
        of(mechanism).given(self, &parameters)
    }

    /// The problem with no more visible than `also` shows.
    fn seeing(&self, also: Mask) -> Self {
        self.clone().with_mask(match &self.mask {
            Mask::Full => also,
            mask => Mask::All(vec![mask.clone(), also]),
        })
    }

    /// The problem with another formula.
    fn by(&self, formula: Formula) -> Self {
        self.clone().with_formula(formula)
    }

    /// The problem with a formula that has no scores; `None` if it changes scores, or its mask
    /// is of single pairs.
    fn without_scores(&self, formula: Formula) -> Option<Self> {
        let has_no_scores =
            self.softcap.is_none() && !self.alibi && self.bias.is_none() && self.dropout.is_none();
        (has_no_scores && is_plain(&self.mask)).then(|| self.by(formula))
    }

    fn vector(&self) -> Parameter {
        Parameter::Vector {
            heads: self.heads,
            d_head: self.d_head,
        }
    }

    fn matrix(&self) -> Parameter {
        Parameter::Matrix {
            heads: self.heads,
            d_head: self.d_head,
        }
    }
}

/// Key and value heads for `heads` query heads, if the mechanism determines them.
pub fn kv_heads_of(mechanism: &MechanismConfig, heads: usize) -> Option<usize> {
    of(mechanism).kv_heads(heads)
}

/// The whole number nearest to the square root of `n`, and at least 1: `r` is nearest as long as
/// `n <= (r + 1/2)²`, whose whole part is `r² + r`.
fn rounded_root(n: usize) -> usize {
    let is_below = |root: &usize| root * root + root < n;
    1 + (1..n).take_while(is_below).count()
}

fn both_sides(window: usize) -> Mask {
    Mask::Window {
        left: window,
        right: window,
    }
}

/// Whether a mask hides later keys.
pub(crate) fn has_causal(mask: &Mask) -> bool {
    match mask {
        Mask::Causal => true,
        Mask::All(parts) => parts.iter().any(has_causal),
        _ => false,
    }
}

/// Whether a mask can be said of keys alone, but for being causal.
pub(crate) fn is_plain(mask: &Mask) -> bool {
    match mask {
        Mask::Full | Mask::Causal | Mask::KeyLengths(_) | Mask::KeyPadding(_) => true,
        Mask::All(parts) => parts.iter().all(is_plain),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_spec::{GroupedQuery, Mechanism, SlidingWindow};

    fn zeros(parameter: Parameter) -> Vec<f32> {
        vec![0.0; parameter.count()]
    }

    #[test]
    fn roots_are_rounded_to_the_nearest() {
        // 2.5² is 6.25, 3.5² is 12.25.
        let wanted = [
            (1, 1),
            (2, 1),
            (3, 2),
            (6, 2),
            (7, 3),
            (12, 3),
            (13, 4),
            (256, 16),
        ];
        for (n, root) in wanted {
            assert_eq!(rounded_root(n), root, "of {n}");
        }
    }

    #[test]
    fn four_or_more_query_heads_share_a_group() {
        let grouped = GroupedQuery { kv_heads: None }.into();
        let groups = [1, 3, 4, 6, 8, 12, 20].map(|heads| kv_heads_of(&grouped, heads));
        assert_eq!(groups, [1, 1, 1, 1, 2, 3, 5].map(Some));
        assert_eq!(kv_heads_of(&Mechanism::MultiQuery.into(), 8), Some(1));
        assert_eq!(kv_heads_of(&Mechanism::Flash.into(), 8), None);
    }

    #[test]
    fn a_window_sees_less() {
        let problem = Problem::new("full", [1, 1, 9, 9, 2]);
        let window = SlidingWindow { window: 1 }.into();
        let given = problem.given_to(&window, zeros).expect("taken");
        assert_eq!(given.density(), 25.0 / 81.0);
    }

    #[test]
    fn what_has_no_scores_takes_nothing_that_changes_them() {
        let linear = Mechanism::Linear.into();
        let takes = |problem: Problem| problem.given_to(&linear, zeros).is_some();
        let plain = Problem::new("plain", [1, 1, 4, 4, 2]);
        assert!(takes(plain.clone()));
        assert!(!takes(plain.clone().with_softcap(1.0)));
        assert!(!takes(plain.clone().with_mask(Mask::Block(2))));
        let retention = Mechanism::Retention.into();
        assert!(plain.given_to(&retention, zeros).is_none());
    }
}
