//! What each mechanism computes, one file for each of them.
//!
//! Nothing here is shared with the crates that it checks: patterns and formulas are written a
//! second time.

use zoo_spec::{MechanismConfig, for_each_mechanism};

use crate::formula::Formula;
use crate::hashed::directions;
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
        Self {
            mask: match &self.mask {
                Mask::Full => also,
                mask => Mask::All(vec![mask.clone(), also]),
            },
            ..self.clone()
        }
    }

    /// The problem with another formula.
    fn by(&self, formula: Formula) -> Self {
        Self {
            formula,
            ..self.clone()
        }
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
    use crate::{catalogue, central_differences, solve};
    use zoo_spec::{
        GroupedQuery, Linear, LinearFeatures, LocalP, Lsh, Mechanism, Performer, SlidingWindow,
    };

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
        let grouped = MechanismConfig::GroupedQuery(GroupedQuery { kv_heads: None });
        let groups = [1, 3, 4, 6, 8, 12, 20].map(|heads| kv_heads_of(&grouped, heads));
        assert_eq!(groups, [1, 1, 1, 1, 2, 3, 5].map(Some));
        assert_eq!(
            kv_heads_of(&MechanismConfig::from(Mechanism::MultiQuery), 8),
            Some(1)
        );
        assert_eq!(
            kv_heads_of(&MechanismConfig::from(Mechanism::Flash), 8),
            None
        );
    }

    #[test]
    fn a_window_sees_less() {
        let problem = Problem::new("full", [1, 1, 9, 9, 2]);
        let window = MechanismConfig::SlidingWindow(SlidingWindow { window: 1 });
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
            MechanismConfig::from(Mechanism::Multiplicative),
            MechanismConfig::from(Mechanism::Additive),
            MechanismConfig::Lsh(Lsh {
                bucket: 2,
                rounds: 2,
                seed: 0,
            }),
            MechanismConfig::LocalP(LocalP { window: 2 }),
            MechanismConfig::from(Mechanism::Linear),
            MechanismConfig::Linear(Linear {
                features: LinearFeatures::Relu,
            }),
            MechanismConfig::Performer(Performer {
                features: 7,
                seed: 0,
                redraw: None,
            }),
            Mechanism::Retention.into(),
        ] {
            // A total of a few features that are mostly cut off may be near its floor, and
            // what is divided by it bends within a step: seen as 4e-3.
            let bends = match mechanism {
                MechanismConfig::Linear(Linear {
                    features: LinearFeatures::Relu,
                }) => 1e-2,
                // A step moves a place by some hundredths, and what falls with the square of
                // the distance bends within it: seen as 2e-4.
                MechanismConfig::LocalP(_) => 1e-3,
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
