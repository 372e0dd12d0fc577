//! What a mechanism computes of a problem.

use zoo_spec::{LinearFeatures, MechanismConfig};

use crate::dropped::scramble;
use crate::formula::{Features, Formula};
use crate::hashed::{Hashing, directions};
use crate::mask::Mask;
use crate::problem::Problem;

/// Numbers that are a mechanism's own choice, and not for the oracle to judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
        /// Places in a chunk.
        bucket: usize,
        /// How often there are others.
        rounds: usize,
        /// Which ones.
        seed: u64,
        /// Places.
        seq: usize,
        /// Numbers in each.
        d_head: usize,
    },
    /// `[batch, heads, seq, rounds]`: the hashes that came of it, of the queries of the
    /// problem.
    Hashes {
        /// Places in a chunk.
        bucket: usize,
        /// How often they are sorted.
        rounds: usize,
        /// By which hashes.
        seed: u64,
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
                bucket,
                rounds,
                seq,
                d_head,
                ..
            } => {
                let [hashes, each] = directions(seq, bucket);
                rounds * hashes * each * d_head
            }
            Self::Hashes {
                rounds, queries, ..
            } => rounds * queries,
            Self::Vector { heads, d_head } => heads * d_head,
            Self::Matrix { heads, d_head } => heads * d_head * d_head,
        }
    }
}

impl Problem {
    /// The problem that a mechanism solves when it is given this one: it may see less, or
    /// weigh by another formula, with `parameters` of its own. `None` if it does not take it.
    pub fn given_to(
        &self,
        mechanism: &MechanismConfig,
        parameters: impl Fn(Parameter) -> Vec<f32>,
    ) -> Option<Self> {
        let problem = self.clone();
        let seeing = |also: Mask| {
            Some(Self {
                mask: match &self.mask {
                    Mask::Full => also,
                    mask => Mask::All(vec![mask.clone(), also]),
                },
                ..self.clone()
            })
        };
        let by = |formula: Formula| {
            let has_no_scores = self.softcap.is_none()
                && !self.alibi
                && self.bias.is_none()
                && self.dropout.is_none();
            (has_no_scores && is_plain(&self.mask)).then(|| Self {
                formula,
                ..self.clone()
            })
        };
        let (heads, d_head) = (self.heads, self.d_head);
        let vector = Parameter::Vector { heads, d_head };
        let matrix = Parameter::Matrix { heads, d_head };
        let weighed = |formula: Formula| {
            Some(Self {
                formula,
                ..self.clone()
            })
        };
        match *mechanism {
            MechanismConfig::Standard | MechanismConfig::Flash => Some(problem),
            MechanismConfig::MultiQuery | MechanismConfig::GroupedQuery { .. } => {
                let is_its_own = kv_heads_of(mechanism, self.heads) == Some(self.kv_heads);
                is_its_own.then_some(problem)
            }
            MechanismConfig::Dot => Some(Self {
                scale: Some(self.scale.unwrap_or(1.0)),
                ..problem
            }),
            MechanismConfig::Multiplicative => weighed(Formula::Multiplicative(parameters(matrix))),
            MechanismConfig::Additive => weighed(Formula::Additive(parameters(vector))),
            MechanismConfig::Hard { temperature, seed } => {
                weighed(Formula::Sampled { temperature, seed })
            }
            MechanismConfig::LocalM { window } => seeing(Mask::Monotonic(window)),
            MechanismConfig::LocalP { window } => weighed(Formula::Predicted {
                vectors: parameters(vector),
                matrices: parameters(matrix),
                window,
            }),
            MechanismConfig::SlidingWindow { window } => seeing(both_sides(window)),
            MechanismConfig::Block { size } => seeing(Mask::Block(size)),
            MechanismConfig::Strided { stride } => {
                let stride = stride.unwrap_or_else(|| rounded_root(self.seq_k));
                let near = both_sides(stride - 1);
                seeing(Mask::Any(vec![near, Mask::Strided(stride)]))
            }
            MechanismConfig::Fixed { block, summary } => {
                let block = block.unwrap_or_else(|| rounded_root(self.seq_k));
                let summaries = Mask::Summaries { block, summary };
                seeing(Mask::Any(vec![Mask::Block(block), summaries]))
            }
            MechanismConfig::Longformer { window, global } => {
                let places = (0..global.min(self.seq_k)).collect();
                seeing(Mask::Any(vec![both_sides(window), Mask::Global(places)]))
            }
            MechanismConfig::BigBird {
                block,
                neighbours,
                global,
                random,
                seed,
            } => {
                let blocks = self.seq_k.div_ceil(block);
                let seen = (0..blocks)
                    .map(|own| seen_by_block(own, blocks, [neighbours, global, random], seed));
                seeing(Mask::Blocks {
                    size: block,
                    seen: seen.collect(),
                })
            }
            MechanismConfig::Lsh {
                bucket,
                rounds,
                seed,
            } => {
                let is_its_own = self.seq_q == self.seq_k && self.kv_heads == self.heads;
                // They would have to be sorted, too.
                let has_places = self.alibi || self.bias.is_some() || self.dropout.is_some();
                let seq = self.seq_k;
                (is_its_own && !has_places).then(|| Self {
                    formula: Formula::Hashed(Hashing {
                        bucket,
                        rounds,
                        directions: parameters(Parameter::HashDirections {
                            bucket,
                            rounds,
                            seed,
                            seq,
                            d_head: self.d_head,
                        }),
                        hashes: parameters(Parameter::Hashes {
                            bucket,
                            rounds,
                            seed,
                            queries: self.queries(),
                        }),
                    }),
                    ..problem
                })
            }
            MechanismConfig::Linear { features } => by(Formula::Features(match features {
                LinearFeatures::Elu1 => Features::Elu1,
                LinearFeatures::Relu => Features::Relu,
            })),
            MechanismConfig::Performer { features, seed, .. } => {
                let directions = parameters(Parameter::Directions {
                    count: features,
                    seed,
                    d_head: self.d_head,
                });
                by(Formula::Features(Features::Random { directions }))
            }
            MechanismConfig::Retention { .. } if has_causal(&self.mask) => {
                // Each head half as far from remembering everything as the last.
                let decays = (0..self.kv_heads).map(|head| 1.0 - 0.5f64.powi(5 + head as i32));
                by(Formula::Retention(decays.collect()))
            }
            MechanismConfig::Retention { .. } => None,
        }
    }
}

/// Key and value heads for so many query heads, where the mechanism says how many; not taken
/// from the configs' own count, which is what it checks.
pub fn kv_heads_of(mechanism: &MechanismConfig, heads: usize) -> Option<usize> {
    match mechanism {
        MechanismConfig::MultiQuery => Some(1),
        MechanismConfig::GroupedQuery {
            kv_heads: Some(own),
        } => Some(*own),
        // The largest divisor that leaves at least four query heads to each, or else 1.
        MechanismConfig::GroupedQuery { kv_heads: None } => {
            let shares =
                |kv_heads: &usize| heads.is_multiple_of(*kv_heads) && heads / kv_heads >= 4;
            (1..=heads).filter(shares).max().or(Some(1))
        }
        _ => None,
    }
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

/// Whether a mask can be said of keys alone, but for being causal.
fn is_plain(mask: &Mask) -> bool {
    match mask {
        Mask::Full | Mask::Causal | Mask::KeyLengths(_) | Mask::KeyPadding(_) => true,
        Mask::All(parts) => parts.iter().all(is_plain),
        _ => false,
    }
}

fn has_causal(mask: &Mask) -> bool {
    match mask {
        Mask::Causal => true,
        Mask::All(parts) => parts.iter().any(has_causal),
        _ => false,
    }
}

/// The blocks that one of them sees: its neighbours, those at both ends, and so many of
/// the others, in the order of their scrambled numbers.
fn seen_by_block(
    own: usize,
    blocks: usize,
    [neighbours, global, random]: [usize; 3],
    seed: u64,
) -> Vec<usize> {
    let is_end = |block: usize| block < global || blocks - block <= global;
    let mut others: Vec<(u64, usize)> = Vec::new();
    let mut seen = Vec::new();
    for block in 0..blocks {
        if is_end(own) || is_end(block) || own.abs_diff(block) <= neighbours {
            seen.push(block);
        } else {
            let number =
                scramble(scramble(seed.wrapping_add(own as u64)).wrapping_add(block as u64));
            others.push((number, block));
        }
    }
    others.sort_unstable();
    seen.extend(others.into_iter().take(random).map(|(_, block)| block));
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalogue, central_differences, solve};
    use zoo_spec::Mechanism;

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
        let grouped = MechanismConfig::GroupedQuery { kv_heads: None };
        let groups = [1, 3, 4, 6, 8, 12, 20].map(|heads| kv_heads_of(&grouped, heads));
        assert_eq!(groups, [1, 1, 1, 1, 2, 3, 5].map(Some));
        assert_eq!(kv_heads_of(&MechanismConfig::MultiQuery, 8), Some(1));
        assert_eq!(kv_heads_of(&MechanismConfig::Flash, 8), None);
    }

    #[test]
    fn a_window_sees_less() {
        let problem = Problem::new("full", [1, 1, 9, 9, 2]);
        let window = MechanismConfig::SlidingWindow { window: 1 };
        let given = problem.given_to(&window, zeros).expect("taken");
        assert_eq!(given.density(), 25.0 / 81.0);
    }

    #[test]
    fn what_has_no_scores_takes_nothing_that_changes_them() {
        let linear = Mechanism::Linear.into();
        let takes = |problem: Problem| problem.given_to(&linear, zeros).is_some();
        let plain = Problem::new("plain", [1, 1, 4, 4, 2]);
        assert!(takes(plain.clone()));
        assert!(!takes(Problem {
            softcap: Some(1.0),
            ..plain.clone()
        }));
        assert!(!takes(Problem {
            mask: Mask::Block(2),
            ..plain.clone()
        }));
        let retention = Mechanism::Retention.into();
        assert!(plain.given_to(&retention, zeros).is_none());
    }

    /// Those of a score by a network, by its vectors too.
    #[test]
    fn gradients_of_a_network_match_central_differences() {
        let plain = crate::find("tiny").expect("in the catalogue");
        let vectors = Problem::new("vectors", [1, 1, plain.heads, 1, plain.d_head]).inputs();
        let with = |vectors: Vec<f32>| Problem {
            formula: Formula::Additive(vectors),
            ..plain.clone()
        };
        let (vectors, inputs) = (vectors.query, plain.inputs());
        let problem = with(vectors.clone());
        let answer = solve(&problem, &inputs);
        let [d_query, d_key, d_value, _] = central_differences(&problem, &inputs);
        let loss = |vectors: Vec<f32>| -> f64 {
            let context = solve(&with(vectors), &inputs).context;
            let pairs = context.iter().zip(&inputs.upstream);
            pairs.map(|(o, u)| o * f64::from(*u)).sum()
        };
        let d_vector: Vec<f64> = (0..vectors.len())
            .map(|at| {
                let moved = |by: f32| {
                    let mut moved = vectors.clone();
                    moved[at] += by;
                    (f64::from(moved[at]), loss(moved))
                };
                let ((above, up), (below, down)) = (moved(1e-3), moved(-1e-3));
                (up - down) / (above - below)
            })
            .collect();
        for (name, by_hand, by_difference) in [
            ("d_query", &answer.d_query, &d_query),
            ("d_key", &answer.d_key, &d_key),
            ("d_value", &answer.d_value, &d_value),
            ("d_vector", &answer.d_vector, &d_vector),
        ] {
            let size = by_hand.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            assert!(size > 0.0, "{name} is nothing");
            for (a, b) in by_hand.iter().zip(by_difference) {
                assert!((a - b).abs() <= 1e-4 * size, "{name}: {a} and {b}");
            }
        }
    }

    /// The gradients by hand of every formula, against differences.
    #[test]
    fn gradients_match_central_differences() {
        let mut checked = 0;
        let parameters = |parameter: Parameter| {
            let sizes = [1, 1, parameter.count(), 1, 1];
            let drawn = Problem::new("parameters", sizes).inputs().query;
            match parameter {
                // A step must not change who sees whom: nobody is nearer to any of these,
                // so that the hashes may be anything.
                Parameter::HashDirections { .. } => vec![0.0; parameter.count()],
                Parameter::Hashes { .. } => {
                    let sign = |x: &f32| if *x > 0.0 { 1.0 } else { 0.0 };
                    drawn.iter().map(sign).collect()
                }
                _ => drawn,
            }
        };
        for mechanism in [
            MechanismConfig::Multiplicative,
            MechanismConfig::Additive,
            MechanismConfig::Lsh {
                bucket: 2,
                rounds: 2,
                seed: 0,
            },
            MechanismConfig::LocalP { window: 2 },
            MechanismConfig::from(Mechanism::Linear),
            MechanismConfig::Linear {
                features: LinearFeatures::Relu,
            },
            MechanismConfig::Performer {
                features: 7,
                seed: 0,
                redraw: None,
            },
            Mechanism::Retention.into(),
        ] {
            // A total of a few features that are mostly cut off may be near its floor, and
            // what is divided by it bends within a step: seen as 4e-3.
            let bends = match mechanism {
                MechanismConfig::Linear {
                    features: LinearFeatures::Relu,
                } => 1e-2,
                // A step moves a place by some hundredths, and what falls with the square of
                // the distance bends within it: seen as 2e-4.
                MechanismConfig::LocalP { .. } => 1e-3,
                _ => 1e-4,
            };
            for problem in catalogue().into_iter().filter(Problem::is_tiny) {
                // Powers of squares: those of large numbers are beyond every step.
                let Some(problem) = problem.given_to(&mechanism, parameters) else {
                    continue;
                };
                if problem.spread > 1.0 {
                    continue;
                }
                let inputs = problem.inputs();
                let mut answer = solve(&problem, &inputs);
                let as_keys = answer.d_query_as_key.iter();
                (answer.d_query.iter_mut().zip(as_keys)).for_each(|(d, more)| *d += more);
                let [d_query, d_key, d_value, _] = central_differences(&problem, &inputs);
                for (name, numbers, by_hand, by_difference) in [
                    ("d_query", &inputs.query, &answer.d_query, &d_query),
                    ("d_key", &inputs.key, &answer.d_key, &d_key),
                    ("d_value", &inputs.value, &answer.d_value, &d_value),
                ] {
                    let size = by_hand.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                    for (at, (a, b)) in by_hand.iter().zip(by_difference).enumerate() {
                        // A step across zero, where some features have a corner, tells nothing.
                        if numbers[at].abs() < 2e-3 {
                            continue;
                        }
                        assert!(
                            (a - b).abs() <= bends * size + 1e-9,
                            "{mechanism:?} {} {name}[{at}]: {a} by hand, {b} by differences",
                            problem.name
                        );
                    }
                }
                checked += 1;
            }
        }
        assert!(checked >= 20, "only {checked} problems were taken");
    }
}
