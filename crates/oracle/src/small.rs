//! What the test suites need to know of each mechanism: sizes at which a short sequence shows
//! what sets it apart from full attention, and the inputs that it refuses.
//!
//! No match here has a wildcard: a new mechanism does not compile until it is described.

use zoo_spec::{LinearFeatures, Mechanism, MechanismConfig};

use crate::mask::Mask;
use crate::mechanism::kv_heads_of;
use crate::problem::Problem;

/// Positions at which every mechanism of [`small_for_tests`] differs from full attention,
/// causal or not.
pub const SMALL_SEQUENCE: usize = 9;

/// Query heads at which it does.
pub const SMALL_HEADS: usize = 4;

/// A mechanism at sizes that do not depend on the length of the sequence, where they can be
/// given, and at which [`SMALL_SEQUENCE`] positions and [`SMALL_HEADS`] heads are enough for it
/// to differ from full attention. The usual sizes see everything in so short a sequence.
pub fn small_for_tests(mechanism: Mechanism) -> MechanismConfig {
    match mechanism {
        Mechanism::Standard => MechanismConfig::Standard,
        Mechanism::Flash => MechanismConfig::Flash,
        Mechanism::MultiQuery => MechanismConfig::MultiQuery,
        Mechanism::GroupedQuery => MechanismConfig::GroupedQuery { kv_heads: Some(2) },
        Mechanism::Dot => MechanismConfig::Dot,
        Mechanism::Multiplicative => MechanismConfig::Multiplicative,
        Mechanism::Additive => MechanismConfig::Additive,
        Mechanism::Hard => MechanismConfig::Hard {
            temperature: 0.7,
            seed: 5,
        },
        Mechanism::SlidingWindow => MechanismConfig::SlidingWindow { window: 2 },
        Mechanism::LocalM => MechanismConfig::LocalM { window: 3 },
        Mechanism::LocalP => MechanismConfig::LocalP { window: 2 },
        Mechanism::Block => MechanismConfig::Block { size: 3 },
        Mechanism::Strided => MechanismConfig::Strided { stride: Some(3) },
        Mechanism::Fixed => MechanismConfig::Fixed {
            block: Some(3),
            summary: 1,
        },
        Mechanism::Longformer => MechanismConfig::Longformer {
            window: 1,
            global: 1,
        },
        // Five blocks in nine positions: the three inner ones see two of each other, their own
        // and a random one.
        Mechanism::BigBird => MechanismConfig::BigBird {
            block: 2,
            neighbours: 0,
            global: 1,
            random: 1,
            seed: 5,
        },
        Mechanism::Lsh => MechanismConfig::Lsh {
            bucket: 2,
            rounds: 2,
            seed: 1,
        },
        Mechanism::Linear => MechanismConfig::Linear {
            features: LinearFeatures::Elu1,
        },
        Mechanism::Performer => MechanismConfig::Performer {
            features: 16,
            seed: 3,
            redraw: None,
        },
        Mechanism::Retention => MechanismConfig::Retention { group_norm: false },
    }
}

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

/// What sets a mechanism apart from full softmax attention over the same queries, keys and
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// Nothing: it is full attention.
    None,
    /// Query heads share key and value heads.
    SharedHeads,
    /// It hides keys that the mask shows.
    HiddenKeys,
    /// It weights the same keys differently.
    Weights,
}

impl Difference {
    /// That of a mechanism.
    pub fn of(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Standard | Mechanism::Flash => Self::None,
            Mechanism::MultiQuery | Mechanism::GroupedQuery => Self::SharedHeads,
            Mechanism::SlidingWindow
            | Mechanism::LocalM
            | Mechanism::LocalP
            | Mechanism::Block
            | Mechanism::Strided
            | Mechanism::Fixed
            | Mechanism::Longformer
            | Mechanism::BigBird
            | Mechanism::Lsh => Self::HiddenKeys,
            Mechanism::Dot
            | Mechanism::Multiplicative
            | Mechanism::Additive
            | Mechanism::Hard
            | Mechanism::Linear
            | Mechanism::Performer
            | Mechanism::Retention => Self::Weights,
        }
    }
}

/// Why padding at the end of a sequence changes what a mechanism gives for the positions before
/// it, although key lengths hide it; `None` if it does not, as for most. Models give these
/// mechanisms rows of one length at a time.
pub fn padding_reaches(config: &MechanismConfig) -> Option<&'static str> {
    match config {
        MechanismConfig::Strided { stride: None } | MechanismConfig::Fixed { block: None, .. } => {
            Some("its size is the root of the number of keys, padding included")
        }
        MechanismConfig::BigBird { .. } => Some("the last blocks, which all see, are padding"),
        MechanismConfig::Lsh { .. } => Some("padding is hashed and sorted among the others"),
        MechanismConfig::Standard
        | MechanismConfig::Flash
        | MechanismConfig::MultiQuery
        | MechanismConfig::GroupedQuery { .. }
        | MechanismConfig::Dot
        | MechanismConfig::Multiplicative
        | MechanismConfig::Additive
        | MechanismConfig::Hard { .. }
        | MechanismConfig::SlidingWindow { .. }
        | MechanismConfig::LocalM { .. }
        | MechanismConfig::LocalP { .. }
        | MechanismConfig::Block { .. }
        | MechanismConfig::Strided { stride: Some(_) }
        | MechanismConfig::Fixed { block: Some(_), .. }
        | MechanismConfig::Longformer { .. }
        | MechanismConfig::Linear { .. }
        | MechanismConfig::Performer { .. }
        | MechanismConfig::Retention { .. } => None,
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
            Self::Softcap => Problem {
                softcap: Some(1.5),
                ..problem
            },
            Self::Alibi => Problem {
                alibi: true,
                ..problem
            },
            Self::Bias => Problem {
                bias: Some(problem.scores_shape()),
                ..problem
            },
            Self::Dropout => Problem {
                dropout: Some((0.4, 17)),
                ..problem
            },
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
            Self::NotCausal => Problem {
                mask: Mask::Full,
                ..problem
            },
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

    /// Why a mechanism refuses this kind of input, in the words of its error; `None` if it
    /// accepts it.
    pub fn refused_by(self, mechanism: Mechanism) -> Option<&'static str> {
        match mechanism {
            Mechanism::Standard
            | Mechanism::Flash
            | Mechanism::MultiQuery
            | Mechanism::GroupedQuery
            | Mechanism::Dot
            | Mechanism::Multiplicative
            | Mechanism::Additive
            | Mechanism::Hard
            | Mechanism::SlidingWindow
            | Mechanism::LocalM
            | Mechanism::LocalP
            | Mechanism::Block
            | Mechanism::Strided
            | Mechanism::Fixed
            | Mechanism::Longformer
            | Mechanism::BigBird => None,
            Mechanism::Lsh => match self {
                Self::Alibi => Some("sorted by their hashes, which ALiBi cannot follow"),
                Self::Bias => Some("sorted by their hashes, which a bias cannot follow"),
                Self::Dropout => Some("sorted by their hashes, which dropout cannot follow"),
                Self::OtherLength | Self::SharedHeads => Some("keys are made of the queries"),
                Self::Softcap | Self::DenseMask | Self::NotCausal => None,
            },
            Mechanism::Linear | Mechanism::Performer => self.refused_without_scores(),
            Mechanism::Retention => match self {
                Self::NotCausal => Some("the pattern must be causal"),
                _ => self.refused_without_scores(),
            },
        }
    }

    /// Why a mechanism that computes no scores refuses it.
    fn refused_without_scores(self) -> Option<&'static str> {
        match self {
            Self::Softcap => Some("no scores or weights for a softcap to change"),
            Self::Alibi => Some("no scores or weights for a ALiBi to change"),
            Self::Bias => Some("no scores or weights for a bias to change"),
            Self::Dropout => Some("no scores or weights for a dropout to change"),
            Self::DenseMask => Some("got a dense mask"),
            Self::NotCausal | Self::OtherLength | Self::SharedHeads => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;

    /// The oracle and the table of refusals say the same.
    #[test]
    fn the_oracle_takes_what_is_not_refused() {
        for mechanism in Mechanism::ALL {
            let config = small_for_tests(mechanism);
            let problem = Problem::small_for(&config);
            let zeros = |parameter: Parameter| vec![0.0; parameter.count()];
            assert!(
                problem.given_to(&config, zeros).is_some(),
                "{mechanism} takes nothing"
            );
            for input in Input::ALL {
                let problem = input.added_to(problem.clone());
                let taken = problem.given_to(&config, zeros).is_some();
                let refused = input.refused_by(mechanism);
                assert_eq!(taken, refused.is_none(), "{mechanism} and {input:?}");
            }
        }
    }
}
