//! What a config may choose among.

use serde::{Deserialize, Serialize};
use zoo_attention::Positions;

use crate::ModelError;

/// Where a layer normalises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Norm {
    /// What goes into each part of a layer: learns without a warm-up. Xiong et al., [On Layer
    /// Normalization in the Transformer](https://arxiv.org/abs/2002.04745), 2020.
    Pre,
    /// What comes out, with what went in added: as in the first paper.
    Post,
}

/// What a feed-forward network does between its matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x · Φ(x)`: Hendrycks and Gimpel, [GELU](https://arxiv.org/abs/1606.08415), 2016.
    Gelu,
    /// The same by a tanh, as GPT-2 has it.
    GeluTanh,
    /// `swish(x W) · (x V)`, by a second matrix: Shazeer,
    /// [GLU Variants](https://arxiv.org/abs/2002.05202), 2020.
    Swiglu,
}

/// How a model learns where its tokens are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PositionsConfig {
    /// Not at all, but for what a causal mechanism shows.
    None,
    /// Waves of many lengths are added to the tokens.
    Sinusoidal,
    /// A vector is learned for each place, and added.
    Learned {
        /// Places there are; longer sequences are refused.
        longest: usize,
    },
    /// Queries and keys of self-attention are turned by their place.
    Rotary {
        /// How slow the slowest turn is; 10,000 in the paper.
        theta: f64,
    },
    /// Scores of self-attention fall with the distance.
    Alibi,
}

impl Norm {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Post => "post",
        }
    }
}

impl Activation {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu-tanh",
            Self::Swiglu => "swiglu",
        }
    }
}

impl PositionsConfig {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sinusoidal => "sinusoidal",
            Self::Learned { .. } => "learned",
            Self::Rotary { .. } => "rotary",
            Self::Alibi => "alibi",
        }
    }

    /// Places there are, if that is limited.
    pub fn longest(self) -> Option<usize> {
        match self {
            Self::Learned { longest } => Some(longest),
            _ => None,
        }
    }

    /// What the heads of self-attention are told.
    pub(crate) fn of_heads(self) -> Positions {
        match self {
            Self::Rotary { theta } => Positions::Rotary { theta },
            Self::Alibi => Positions::Alibi,
            Self::None | Self::Sinusoidal | Self::Learned { .. } => Positions::None,
        }
    }

    pub(crate) fn check(self) -> Result<(), ModelError> {
        match self {
            Self::Learned { longest } => ModelError::at_least("positions.longest", 1, longest),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_files() {
        let text = |value| serde_json::to_string(&value).expect("plain data");
        for norm in [Norm::Pre, Norm::Post] {
            assert_eq!(serde_json::json!(norm), norm.word());
        }
        for activation in [
            Activation::Relu,
            Activation::Gelu,
            Activation::GeluTanh,
            Activation::Swiglu,
        ] {
            assert_eq!(serde_json::json!(activation), activation.word());
        }
        for positions in [
            PositionsConfig::None,
            PositionsConfig::Sinusoidal,
            PositionsConfig::Alibi,
        ] {
            assert_eq!(serde_json::json!(positions), positions.word());
        }
        let learned = PositionsConfig::Learned { longest: 9 };
        assert_eq!(text(learned), r#"{"learned":{"longest":9}}"#);
        let rotary = PositionsConfig::Rotary { theta: 1e4 };
        assert_eq!(text(rotary), r#"{"rotary":{"theta":10000.0}}"#);
    }
}
