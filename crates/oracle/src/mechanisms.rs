//! What each mechanism computes: softmax attention to fewer keys, or another formula.
//!
//! Nothing here is shared with the crates that it checks: patterns and formulas are written a
//! second time.

use zoo_spec::{BigBird, LinearFeatures, Lsh, MechanismConfig};

use crate::dropped::scramble;
use crate::formula::{Features, Formula};
use crate::hashed::{Hashing, directions};
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

impl Problem {
    /// The problem that a mechanism solves when it is given this one: with fewer visible keys, or
    /// another formula, with `parameters` of its own. `None` if it does not accept the problem.
    pub fn given_to(
        &self,
        mechanism: &MechanismConfig,
        parameters: impl Fn(Parameter) -> Vec<f32>,
    ) -> Option<Self> {
        let (heads, d_head) = (self.heads, self.d_head);
        let vectors = || parameters(Parameter::Vector { heads, d_head });
        let matrices = || parameters(Parameter::Matrix { heads, d_head });
        match mechanism {
            MechanismConfig::Standard(_) | MechanismConfig::Flash(_) => Some(self.clone()),
            MechanismConfig::Dot(_) => Some(self.clone().with_scale(self.scale.unwrap_or(1.0))),
            MechanismConfig::MultiQuery(_) | MechanismConfig::GroupedQuery(_) => {
                let is_its_own = kv_heads_of(mechanism, heads) == Some(self.kv_heads);
                is_its_own.then(|| self.clone())
            }

            MechanismConfig::SlidingWindow(it) => self.seeing(both_sides(it.window)),
            MechanismConfig::Block(it) => self.seeing(Mask::Block(it.size)),
            MechanismConfig::Strided(it) => {
                let stride = it.stride.unwrap_or_else(|| rounded_root(self.seq_k));
                let near = both_sides(stride - 1);
                self.seeing(Mask::Any(vec![near, Mask::Strided(stride)]))
            }
            MechanismConfig::Fixed(it) => {
                let block = it.block.unwrap_or_else(|| rounded_root(self.seq_k));
                let summary = it.summary;
                let summaries = Mask::Summaries { block, summary };
                self.seeing(Mask::Any(vec![Mask::Block(block), summaries]))
            }
            MechanismConfig::Longformer(it) => {
                let global = (0..it.global.min(self.seq_k)).collect();
                let near = both_sides(it.window);
                self.seeing(Mask::Any(vec![near, Mask::Global(global)]))
            }
            MechanismConfig::BigBird(it) => {
                let blocks = self.seq_k.div_ceil(it.block);
                let seen = (0..blocks).map(|own| seen_by_block(it, own, blocks));
                self.seeing(Mask::Blocks {
                    size: it.block,
                    seen: seen.collect(),
                })
            }
            MechanismConfig::LocalM(it) => self.seeing(Mask::Monotonic(it.window)),

            MechanismConfig::Additive(_) => Some(self.by(Formula::Additive(vectors()))),
            MechanismConfig::Multiplicative(_) => {
                Some(self.by(Formula::Multiplicative(matrices())))
            }
            MechanismConfig::LocalP(it) => Some(self.by(Formula::Predicted {
                vectors: vectors(),
                matrices: matrices(),
                window: it.window,
            })),
            MechanismConfig::Hard(it) => Some(self.by(Formula::Sampled {
                temperature: it.temperature,
                seed: it.seed,
            })),
            MechanismConfig::Lsh(it) => {
                let is_its_own = self.seq_q == self.seq_k && self.kv_heads == heads;
                // They would have to be sorted, too.
                let has_positions = self.alibi || self.bias.is_some() || self.dropout.is_some();
                (is_its_own && !has_positions).then(|| {
                    self.by(Formula::Hashed(Hashing {
                        bucket: it.bucket,
                        rounds: it.rounds,
                        directions: parameters(Parameter::HashDirections {
                            hashing: *it,
                            seq: self.seq_k,
                            d_head,
                        }),
                        hashes: parameters(Parameter::Hashes {
                            hashing: *it,
                            queries: self.queries(),
                        }),
                    }))
                })
            }

            MechanismConfig::Linear(it) => {
                self.without_scores(Formula::Features(match it.features {
                    LinearFeatures::Elu1 => Features::Elu1,
                    LinearFeatures::Relu => Features::Relu,
                }))
            }
            MechanismConfig::Performer(it) => {
                let directions = parameters(Parameter::Directions {
                    count: it.features,
                    seed: it.seed,
                    d_head,
                });
                self.without_scores(Formula::Features(Features::Random { directions }))
            }
            MechanismConfig::Retention(_) => {
                // Each head half as far from remembering everything as the last.
                let decays = (0..self.kv_heads).map(|head| 1.0 - 0.5f64.powi(5 + head as i32));
                let given = self.without_scores(Formula::Retention(decays.collect()));
                given.filter(|_| has_causal(&self.mask))
            }
        }
    }

    /// The problem with no more visible than `also` shows.
    fn seeing(&self, also: Mask) -> Option<Self> {
        Some(self.clone().with_mask(match &self.mask {
            Mask::Full => also,
            mask => Mask::All(vec![mask.clone(), also]),
        }))
    }

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
}

/// Key and value heads for `heads` query heads, if the mechanism determines them; not by
/// `zoo-spec`, whose answer is what is checked.
pub fn kv_heads_of(mechanism: &MechanismConfig, heads: usize) -> Option<usize> {
    match mechanism {
        MechanismConfig::MultiQuery(_) => Some(1),
        MechanismConfig::GroupedQuery(it) => {
            // The largest divisor that leaves at least four query heads to each, or else 1.
            let shares = |count: &usize| heads.is_multiple_of(*count) && heads / count >= 4;
            let usual = (1..=heads).filter(shares).max();
            Some(it.kv_heads.or(usual).unwrap_or(1))
        }
        _ => None,
    }
}

/// The blocks that one of them sees: its neighbours, those at both ends, and so many of
/// the others, in the order of their scrambled numbers.
fn seen_by_block(sizes: &BigBird, own: usize, blocks: usize) -> Vec<usize> {
    let is_end = |block: usize| block < sizes.global || blocks - block <= sizes.global;
    let is_near = |block: usize| own.abs_diff(block) <= sizes.neighbours;
    let number = |block: &usize| {
        let of_own = scramble(sizes.seed.wrapping_add(own as u64));
        scramble(of_own.wrapping_add(*block as u64))
    };
    let (mut seen, mut others): (Vec<usize>, Vec<usize>) =
        (0..blocks).partition(|&block| is_end(own) || is_end(block) || is_near(block));
    others.sort_by_key(number);
    seen.extend(others.into_iter().take(sizes.random));
    seen
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
