//! Configuration of generation.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// Configuration of generation. Missing keys of a file have the defaults of
/// [`GenerateConfig::new`].
///
/// Lengths count generated tokens, without the prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateConfig {
    /// Decoding strategy. Default: greedy.
    pub strategy: Strategy,
    /// End token. Default: none.
    pub end: Option<u32>,
    /// Further end tokens, for models that end texts and turns of a dialogue differently. Default:
    /// none.
    pub other_ends: Vec<u32>,
    /// Tokens that are never generated, for example padding. Default: none.
    pub never: Vec<u32>,
    /// Minimum number of tokens before the end token. Default: 0.
    pub min_length: usize,
    /// Maximum number of tokens, including the end token. Generation also stops at the end of the
    /// model's context. Default: 128.
    pub max_length: usize,
    /// Size of the n-grams that must not repeat, including the prompt; the end token is exempt.
    /// Default: none.
    pub no_repeat_ngram: Option<usize>,
    /// Random seed for sampling. Default: 0.
    pub seed: u64,
}

/// Decoding strategy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Strategy {
    /// The most likely token at each step; ties go to the smallest id.
    Greedy,
    /// Beam search.
    Beam {
        /// Number of beams.
        #[serde(default = "default_beams")]
        beams: usize,
        /// Length penalty exponent α (0 = none).
        #[serde(default)]
        length_penalty: f64,
        /// Number of hypotheses to return.
        #[serde(default = "default_n_best")]
        n_best: usize,
    },
    /// Random sampling.
    Sample {
        /// Softmax temperature.
        #[serde(default = "default_temperature")]
        temperature: f64,
        /// Sample from the K most likely tokens.
        #[serde(default)]
        top_k: Option<usize>,
        /// Nucleus sampling: smallest set of tokens with total probability P, after `top_k`.
        #[serde(default)]
        top_p: Option<f64>,
    },
}

/// Each beam is a row of the model's state; a larger number is probably a typo.
const MAX_BEAMS: usize = 1024;

/// The same limit as in config files.
const MAX_TOKENS: usize = 1 << 20;

fn default_beams() -> usize {
    4
}

fn default_n_best() -> usize {
    1
}

fn default_temperature() -> f64 {
    1.0
}

impl Strategy {
    /// Beam search for the best hypothesis, without a length penalty.
    pub fn beam(beams: usize) -> Self {
        Self::Beam {
            beams,
            length_penalty: 0.0,
            n_best: default_n_best(),
        }
    }

    /// Sampling from the whole vocabulary.
    pub fn sample(temperature: f64) -> Self {
        Self::Sample {
            temperature,
            top_k: None,
            top_p: None,
        }
    }
}

impl Default for GenerateConfig {
    fn default() -> Self {
        Self::new(Strategy::Greedy)
    }
}

setters! { GenerateConfig, () {
    /// End token.
    end: Option<u32>,
    /// Further end tokens.
    other_ends: Vec<u32>,
    /// Tokens that are never generated.
    never: Vec<u32>,
    /// Minimum number of tokens before the end token.
    min_length: usize,
    /// Maximum number of tokens.
    max_length: usize,
    /// Size of the n-grams that must not repeat.
    no_repeat_ngram: Option<usize>,
    /// Random seed for sampling.
    seed: u64,
} }

impl GenerateConfig {
    /// Up to 128 tokens, without an end token.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            end: None,
            other_ends: vec![],
            never: vec![],
            min_length: 0,
            max_length: 128,
            no_repeat_ngram: None,
            seed: 0,
        }
    }

    /// Checks the config for a vocabulary of this size.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] for the first field that is out of range.
    pub fn check(&self, vocabulary: usize) -> Result<(), ModelError> {
        match self.strategy {
            Strategy::Greedy => {}
            Strategy::Beam {
                beams,
                length_penalty,
                n_best,
            } => {
                let allowed = format!("from 1 to {MAX_BEAMS}");
                ModelError::require((1..=MAX_BEAMS).contains(&beams), "beams", allowed, beams)?;
                let is_valid = length_penalty >= 0.0 && length_penalty.is_finite();
                ModelError::require(is_valid, "length_penalty", "at least 0", length_penalty)?;
                let allowed = format!("from 1 to beams = {beams}");
                ModelError::require((1..=beams).contains(&n_best), "n_best", allowed, n_best)?;
            }
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => {
                let is_valid = temperature > 0.0 && temperature.is_finite();
                ModelError::require(is_valid, "temperature", "above 0", temperature)?;
                ModelError::at_least("top_k", 1, top_k.unwrap_or(1))?;
                let top_p = top_p.unwrap_or(1.0);
                let is_valid = top_p > 0.0 && top_p <= 1.0;
                ModelError::require(is_valid, "top_p", "above 0 and at most 1", top_p)?;
            }
        }
        let (min, max) = (self.min_length, self.max_length);
        ModelError::at_least("max_length", 1, max)?;
        let allowed = format!("at most {MAX_TOKENS}");
        ModelError::require(max <= MAX_TOKENS, "max_length", allowed, max)?;
        let allowed = format!("at most max_length = {max}");
        ModelError::require(min <= max, "min_length", allowed, min)?;
        ModelError::at_least("no_repeat_ngram", 1, self.no_repeat_ngram.unwrap_or(1))?;
        let check_token = |field, token: u32| {
            let allowed = format!("below the vocabulary size {vocabulary}");
            ModelError::require((token as usize) < vocabulary, field, allowed, token)
        };
        let ends = self.end.map(|end| ("end", end)).into_iter();
        for (field, end) in ends.chain(self.other_ends.iter().map(|end| ("other_ends", *end))) {
            check_token(field, end)?;
            let allowed = "different from the end token";
            ModelError::require(!self.never.contains(&end), "never", allowed, end)?;
        }
        (self.never.iter()).try_for_each(|token| check_token("never", *token))
    }

    /// All end tokens.
    pub(super) fn ends(&self) -> impl Iterator<Item = u32> {
        self.end.into_iter().chain(self.other_ends.iter().copied())
    }

    pub(super) fn is_end(&self, token: u32) -> bool {
        self.ends().any(|end| end == token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_rejected;

    fn beam(length_penalty: f64, n_best: usize) -> Strategy {
        Strategy::Beam {
            beams: 4,
            length_penalty,
            n_best,
        }
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let cases = r#"
            {"strategy": {"kind": "beam", "beams": 0}}
                beams must be from 1 to 1024, got 0
            {"strategy": {"kind": "beam", "length_penalty": -0.5}}
                length_penalty must be at least 0, got -0.5
            {"strategy": {"kind": "beam", "beams": 2, "n_best": 3}}
                n_best must be from 1 to beams = 2, got 3
            {"strategy": {"kind": "beam", "beams": 2, "n_best": 0}}
                n_best must be from 1 to beams = 2, got 0
            {"strategy": {"kind": "sample", "temperature": 0.0}}
                temperature must be above 0, got 0
            {"strategy": {"kind": "sample", "top_k": 0}}
                top_k must be at least 1, got 0
            {"strategy": {"kind": "sample", "top_p": 0.0}}
                top_p must be above 0 and at most 1, got 0
            {"strategy": {"kind": "sample", "top_p": 1.5}}
                top_p must be above 0 and at most 1, got 1.5
            {"max_length": 0, "min_length": 0}
                max_length must be at least 1, got 0
            {"max_length": 2305843009213693952}
                max_length must be at most 1048576, got 2305843009213693952
            {"max_length": 3, "min_length": 4}
                min_length must be at most max_length = 3, got 4
            {"no_repeat_ngram": 0}
                no_repeat_ngram must be at least 1, got 0
            {"end": 10}
                end must be below the vocabulary size 10, got 10
            {"other_ends": [1, 11]}
                other_ends must be below the vocabulary size 10, got 11
            {"never": [0, 3], "end": 1, "other_ends": [2, 3]}
                never must be different from the end token, got 3
            {"never": [0, 12]}
                never must be below the vocabulary size 10, got 12
            {"never": [0, 3], "end": 3}
                never must be different from the end token, got 3
        "#;
        let valid = GenerateConfig::new(Strategy::Sample {
            temperature: 0.5,
            top_k: Some(3),
            top_p: Some(1.0),
        });
        let valid = valid
            .with_end(Some(9))
            .with_max_length(3)
            .with_min_length(3);
        assert_rejected(&valid, |config| config.check(10), cases);
        let nan = "length_penalty must be at least 0, got NaN";
        let infinite = "temperature must be above 0, got inf";
        for (strategy, message) in [
            (beam(f64::NAN, 1), nan),
            (Strategy::sample(f64::INFINITY), infinite),
        ] {
            let error = GenerateConfig::new(strategy).check(10).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn missing_keys_have_defaults() {
        let read = |text: &str| serde_json::from_str::<GenerateConfig>(text);
        let config = read(r#"{"strategy": {"kind": "beam", "n_best": 2}, "end": 3}"#);
        let expected = GenerateConfig::new(beam(0.0, 2)).with_end(Some(3));
        assert_eq!(config.expect("valid config"), expected);
        let config = read(r#"{"strategy": {"kind": "sample", "top_k": 5}}"#);
        let sampled = Strategy::Sample {
            temperature: 1.0,
            top_k: Some(5),
            top_p: None,
        };
        assert_eq!(config.expect("valid config").strategy, sampled);
        assert_eq!(read("{}").expect("valid config"), Default::default());
        for invalid in [
            r#"{"max_lenght": 3}"#,
            r#"{"strategy": {"kind": "beam", "width": 2}}"#,
            r#"{"strategy": {"kind": "widest"}}"#,
        ] {
            assert!(read(invalid).is_err(), "{invalid}");
        }
        let written = serde_json::to_string(&expected).expect("serializable config");
        assert_eq!(read(&written).expect("valid config"), expected);
    }
}
