//! A short problem for each mechanism, and the inputs that not every mechanism accepts.

use zoo_spec::{KvHeads, Mechanism, MechanismConfig, Padding};

use crate::mask::Mask;
use crate::mechanisms::{has_causal, is_plain, kv_heads_of};
use crate::problem::Problem;

/// Positions at which every mechanism at its small sizes differs from full attention, causal or
/// not.
pub const SMALL_SEQUENCE: usize = 9;

/// Query heads at which it does.
pub const SMALL_HEADS: usize = 4;

impl Problem {
    /// A causal problem of [`SMALL_SEQUENCE`] positions and [`SMALL_HEADS`] query heads, with
    /// as many key and value heads as the mechanism has.
    pub fn small_for(config: &MechanismConfig) -> Self {
        Self {
            kv_heads: kv_heads_of(config, SMALL_HEADS).unwrap_or(SMALL_HEADS),
            d_value: 6,
            mask: Mask::Causal,
            ..Self::new("small", [2, SMALL_HEADS, SMALL_SEQUENCE, SMALL_SEQUENCE, 8])
        }
    }
}

/// A mechanism at its small sizes.
pub fn small_for_tests(mechanism: Mechanism) -> MechanismConfig {
    mechanism.small_for_tests()
}

/// Why padding at the end of a sequence changes what a mechanism computes for the positions before
/// it, although key lengths hide it; `None` if it does not.
pub fn padding_reaches(mechanism: &MechanismConfig) -> Option<&'static str> {
    match mechanism.capabilities().padding {
        Padding::ChangesResult(reason) => Some(reason),
        Padding::Masked | Padding::NeedsKeyLengths => None,
    }
}

/// A kind of input that not every mechanism accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// A cap on scores.
    Softcap,
    /// Scores that fall with the distance.
    Alibi,
    /// Numbers added to scores.
    Bias,
    /// Weights that are dropped.
    Dropout,
    /// A mask of its own for every pair of query and key.
    DenseMask,
    /// Queries that see keys after their own position.
    NotCausal,
    /// Another number of queries than of keys.
    OtherLength,
    /// Fewer key and value heads than query heads.
    SharedHeads,
}

impl Input {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Softcap,
        Self::Alibi,
        Self::Bias,
        Self::Dropout,
        Self::DenseMask,
        Self::NotCausal,
        Self::OtherLength,
        Self::SharedHeads,
    ];

    /// The problem with this kind of input added.
    pub fn added_to(self, problem: Problem) -> Problem {
        match self {
            Self::Softcap => problem.with_softcap(1.5),
            Self::Alibi => problem.with_alibi(),
            Self::Bias => Problem {
                bias: Some(problem.scores_shape()),
                ..problem
            },
            Self::Dropout => problem.with_dropout((0.4, 17)),
            Self::DenseMask => Problem {
                mask: Mask::All(vec![
                    problem.mask.clone(),
                    Mask::Scattered {
                        hidden: 0.3,
                        blind_every: 4,
                    },
                ]),
                ..problem
            },
            Self::NotCausal => problem.with_mask(Mask::Full),
            Self::OtherLength => Problem {
                seq_q: problem.seq_q - 2,
                ..problem
            },
            Self::SharedHeads => Problem {
                kv_heads: problem.kv_heads.min(problem.heads / 2),
                ..problem
            },
        }
    }

    /// Whether a problem has this kind of input.
    pub fn is_in(self, problem: &Problem) -> bool {
        match self {
            Self::Softcap => problem.softcap.is_some(),
            Self::Alibi => problem.alibi,
            Self::Bias => problem.bias.is_some(),
            Self::Dropout => problem.dropout.is_some(),
            Self::DenseMask => !is_plain(&problem.mask),
            Self::NotCausal => !has_causal(&problem.mask),
            Self::OtherLength => problem.seq_q != problem.seq_k,
            Self::SharedHeads => problem.kv_heads < problem.heads,
        }
    }

    /// Why a mechanism refuses this kind of input, part of its error; `None` if it accepts it.
    pub fn refused_by(self, mechanism: Mechanism) -> Option<&'static str> {
        let capabilities = mechanism.small_for_tests().capabilities();
        let support = match self {
            Self::Softcap => capabilities.options.softcap,
            Self::Alibi => capabilities.options.alibi,
            Self::Bias => capabilities.options.bias,
            Self::Dropout => capabilities.options.dropout,
            Self::DenseMask => capabilities.options.dense_mask,
            Self::NotCausal => capabilities.bidirectional,
            Self::OtherLength | Self::SharedHeads => match capabilities.kv_heads {
                KvHeads::FromQueries => Err("keys are made of the queries"),
                KvHeads::Any | KvHeads::Exactly(_) | KvHeads::Quarter => Ok(()),
            },
        };
        support.err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, catalogue, only_measured};

    /// The oracle accepts a problem, with as many key and value heads as the mechanism has, exactly
    /// if none of its inputs is refused.
    fn assert_taken_unless_refused(problem: &Problem, config: &MechanismConfig) {
        let mechanism = config.mechanism();
        let zeros = |parameter: Parameter| vec![0.0; parameter.count()];
        let taken = problem.given_to(config, zeros).is_some();
        let mut inputs = Input::ALL.iter().filter(|input| input.is_in(problem));
        let refused = inputs.find_map(|input| input.refused_by(mechanism));
        assert_eq!(taken, refused.is_none(), "{mechanism}, {problem:?}");
    }

    #[test]
    fn the_oracle_takes_problems_without_refused_inputs() {
        for mechanism in Mechanism::ALL {
            for mut problem in catalogue().into_iter().chain(only_measured()) {
                let config = MechanismConfig::from(mechanism);
                let kv_heads = kv_heads_of(&config, problem.heads);
                problem.kv_heads = kv_heads.unwrap_or(problem.kv_heads);
                assert_taken_unless_refused(&problem, &config);
            }
            let config = mechanism.small_for_tests();
            let problem = Problem::small_for(&config);
            let mut inputs = Input::ALL.iter().filter(|input| input.is_in(&problem));
            assert!(inputs.all(|input| input.refused_by(mechanism).is_none()));
            assert_taken_unless_refused(&problem, &config);
            for input in Input::ALL {
                let problem = input.added_to(problem.clone());
                assert!(input.is_in(&problem), "{input:?} was not added");
                assert_taken_unless_refused(&problem, &config);
            }
        }
    }
}
