//! A short problem for each mechanism, and requirements that not every mechanism supports.

use zoo_spec::{KvHeads, Mechanism, MechanismConfig, Padding};

use crate::mask::Mask;
use crate::mechanisms::{expected_kv_heads, is_causal, is_key_mask};
use crate::problem::Problem;

/// Sequence length at which every mechanism with its test sizes differs from full attention,
/// causal or not.
pub const SMALL_SEQUENCE: usize = 9;

/// Query heads of the short problems.
pub const SMALL_HEADS: usize = 4;

impl Problem {
    /// A causal problem, or without a mask if the mechanism is never causal, with [`SMALL_SEQUENCE`] positions, [`SMALL_HEADS`] query heads and the
    /// mechanism's number of key and value heads.
    pub fn small_for(config: &MechanismConfig) -> Self {
        Self {
            kv_heads: expected_kv_heads(config, SMALL_HEADS).unwrap_or(SMALL_HEADS),
            d_value: 6,
            mask: match config.capabilities().causal {
                Ok(()) => Mask::Causal,
                Err(_) => Mask::Full,
            },
            ..Self::new("small", [2, SMALL_HEADS, SMALL_SEQUENCE, SMALL_SEQUENCE, 8])
        }
    }
}

/// Why padding at the end of a sequence changes the results of a mechanism although key lengths
/// mask it; `None` if it does not.
pub fn padding_effect(mechanism: &MechanismConfig) -> Option<&'static str> {
    match mechanism.capabilities().padding {
        Padding::ChangesResult(reason) => Some(reason),
        Padding::Masked | Padding::NeedsKeyLengths => None,
    }
}

/// A requirement of a problem that not every mechanism supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requirement {
    /// A softcap on scores.
    Softcap,
    /// ALiBi.
    Alibi,
    /// A bias on scores.
    Bias,
    /// Dropout of weights.
    Dropout,
    /// A mask with a value for every pair of query and key.
    DenseMask,
    /// Queries that attend to later keys.
    Bidirectional,
    /// Queries that attend to no later keys.
    Causal,
    /// Different numbers of queries and keys.
    DifferentLengths,
    /// Fewer key and value heads than query heads.
    SharedHeads,
    /// An odd head dimension.
    OddHead,
}

impl Requirement {
    /// All requirements.
    pub const ALL: [Self; 10] = [
        Self::Softcap,
        Self::Alibi,
        Self::Bias,
        Self::Dropout,
        Self::DenseMask,
        Self::Bidirectional,
        Self::Causal,
        Self::DifferentLengths,
        Self::SharedHeads,
        Self::OddHead,
    ];

    /// The problem with this requirement.
    pub fn add_to(self, problem: Problem) -> Problem {
        match self {
            Self::Softcap => problem.with_softcap(1.5),
            Self::Alibi => problem.with_alibi(),
            Self::Bias => Problem {
                bias: Some(problem.scores_shape()),
                ..problem
            },
            Self::Dropout => problem.with_dropout((0.4, 17)),
            Self::DenseMask => problem.and_mask(Mask::Random {
                masked: 0.3,
                fully_masked_every: 4,
            }),
            Self::Bidirectional => problem.with_mask(Mask::Full),
            Self::Causal => problem.with_mask(Mask::Causal),
            Self::DifferentLengths => Problem {
                seq_q: problem.seq_q - 2,
                ..problem
            },
            Self::SharedHeads => Problem {
                kv_heads: problem.kv_heads.min(problem.heads / 2),
                ..problem
            },
            Self::OddHead => Problem {
                d_head: problem.d_head | 1,
                ..problem
            },
        }
    }

    /// Whether a problem has this requirement.
    pub fn is_in(self, problem: &Problem) -> bool {
        match self {
            Self::Softcap => problem.softcap.is_some(),
            Self::Alibi => problem.alibi,
            Self::Bias => problem.bias.is_some(),
            Self::Dropout => problem.dropout.is_some(),
            Self::DenseMask => !is_key_mask(&problem.mask),
            Self::Bidirectional => !is_causal(&problem.mask),
            Self::Causal => is_causal(&problem.mask),
            Self::DifferentLengths => problem.seq_q != problem.seq_k,
            Self::SharedHeads => problem.kv_heads < problem.heads,
            Self::OddHead => problem.d_head % 2 == 1,
        }
    }

    /// Why a mechanism does not support this, as in its error message; `None` if it does.
    pub fn unsupported_reason(self, mechanism: Mechanism) -> Option<&'static str> {
        let capabilities = mechanism.small_for_tests().capabilities();
        let support = match self {
            Self::Softcap => capabilities.options.softcap,
            Self::Alibi => capabilities.options.alibi,
            Self::Bias => capabilities.options.bias,
            Self::Dropout => capabilities.options.dropout,
            Self::DenseMask => capabilities.options.dense_mask,
            Self::Bidirectional => capabilities.bidirectional,
            Self::Causal => capabilities.causal,
            Self::OddHead => capabilities.odd_d_head,
            Self::DifferentLengths | Self::SharedHeads => match capabilities.kv_heads {
                KvHeads::FromQueries => Err("the queries are the keys"),
                KvHeads::Any | KvHeads::Exactly(_) | KvHeads::Quarter => Ok(()),
            },
        };
        support.err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, bench_only, catalogue};

    /// The oracle accepts a problem exactly if the mechanism supports all of its requirements.
    fn assert_accepted_if_supported(problem: &Problem, config: &MechanismConfig) {
        let mechanism = config.mechanism();
        let zeros = |parameter: Parameter| vec![0.0; parameter.num_elements()];
        let accepted = problem.with_mechanism(config, zeros).is_some();
        let mut requirements = Requirement::ALL.iter().filter(|r| r.is_in(problem));
        let unsupported = requirements.find_map(|r| r.unsupported_reason(mechanism));
        assert_eq!(accepted, unsupported.is_none(), "{mechanism}, {problem:?}");
    }

    #[test]
    fn oracle_accepts_supported_problems() {
        for mechanism in Mechanism::ALL {
            for mut problem in catalogue().into_iter().chain(bench_only()) {
                let config = MechanismConfig::from(mechanism);
                let kv_heads = expected_kv_heads(&config, problem.heads);
                problem.kv_heads = kv_heads.unwrap_or(problem.kv_heads);
                assert_accepted_if_supported(&problem, &config);
            }
            let config = mechanism.small_for_tests();
            let problem = Problem::small_for(&config);
            let mut requirements = Requirement::ALL.iter().filter(|r| r.is_in(&problem));
            assert!(requirements.all(|r| r.unsupported_reason(mechanism).is_none()));
            assert_accepted_if_supported(&problem, &config);
            for requirement in Requirement::ALL {
                let problem = requirement.add_to(problem.clone());
                assert!(requirement.is_in(&problem), "{requirement:?}");
                assert_accepted_if_supported(&problem, &config);
            }
        }
    }
}
