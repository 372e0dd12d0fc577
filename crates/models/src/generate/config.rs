//! How to generate, and what cannot be asked for.

use serde::{Deserialize, Serialize};

use crate::ModelError;

/// How to generate. What a file leaves out is as in [`GenerateConfig::new`].
///
/// Lengths are those of what is made; a prompt is not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateConfig {
    /// How tokens are chosen. Default: greedy.
    pub strategy: Strategy,
    /// The token that ends a text, if one does. Default: none.
    pub end: Option<u32>,
    /// Tokens that are in no text, as a batch's padding. Default: none.
    pub never: Vec<u32>,
    /// Tokens before the end may come. Default: 0.
    pub min_length: usize,
    /// Tokens after which a text stops, the end counted. It stops earlier where the model has
    /// no more positions. Default: 128.
    pub max_length: usize,
    /// How many tokens in a row must not come twice in a text, prompt included; the end
    /// always may. Default: any may come again.
    pub no_repeat_ngram: Option<usize>,
    /// What is drawn when sampling: the same seed, the same text. Default: 0.
    pub seed: u64,
}

/// How tokens are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Strategy {
    /// The likeliest one each time; the one with the least number of several.
    Greedy,
    /// The best of several texts that are followed side by side.
    Beam {
        /// How many.
        #[serde(default = "usual_beams")]
        beams: usize,
        /// The α by which longer texts may be less likely; 0 is not at all.
        #[serde(default)]
        length_penalty: f64,
        /// How many texts come back.
        #[serde(default = "one_text")]
        n_best: usize,
    },
    /// Drawn.
    Sample {
        /// What logits are divided by: below 1 sharpens, above 1 flattens.
        #[serde(default = "usual_temperature")]
        temperature: f64,
        /// Draws among the likeliest so many tokens alone.
        #[serde(default)]
        top_k: Option<usize>,
        /// Draws among the fewest likeliest tokens, of those `top_k` leaves, that are together
        /// at least as likely as this.
        #[serde(default)]
        top_p: Option<f64>,
    },
}

/// Each is a row of the model's state: more would be a slip.
const MOST_BEAMS: usize = 1024;

/// Tokens of a text at most, as in a config file.
const MOST_TOKENS: usize = 1 << 20;

fn usual_beams() -> usize {
    4
}

fn one_text() -> usize {
    1
}

fn usual_temperature() -> f64 {
    1.0
}

impl Strategy {
    /// Beam search for the best text, without a length penalty.
    pub fn beam(beams: usize) -> Self {
        Self::Beam {
            beams,
            length_penalty: 0.0,
            n_best: one_text(),
        }
    }

    /// Sampling among all tokens.
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
    /// The token that ends a text.
    end: Option<u32>,
    /// Tokens that are in no text.
    never: Vec<u32>,
    /// Tokens before the end may come.
    min_length: usize,
    /// Tokens after which a text stops.
    max_length: usize,
    /// How many tokens in a row must not come twice.
    no_repeat_ngram: Option<usize>,
    /// What is drawn when sampling.
    seed: u64,
} }

impl GenerateConfig {
    /// Up to 128 tokens, without an end.
    pub fn new(strategy: Strategy) -> Self {
        Self {
            strategy,
            end: None,
            never: vec![],
            min_length: 0,
            max_length: 128,
            no_repeat_ngram: None,
            seed: 0,
        }
    }

    /// Whether this can be done with so many tokens.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] with the first field that is out of range.
    pub fn check(&self, vocabulary: usize) -> Result<(), ModelError> {
        match self.strategy {
            Strategy::Greedy => {}
            Strategy::Beam {
                beams,
                length_penalty,
                n_best,
            } => {
                let allowed = format!("from 1 to {MOST_BEAMS}");
                ModelError::require((1..=MOST_BEAMS).contains(&beams), "beams", allowed, beams)?;
                let is_fine = length_penalty >= 0.0 && length_penalty.is_finite();
                ModelError::require(is_fine, "length_penalty", "at least 0", length_penalty)?;
                let allowed = format!("from 1 to beams = {beams}");
                ModelError::require((1..=beams).contains(&n_best), "n_best", allowed, n_best)?;
            }
            Strategy::Sample {
                temperature,
                top_k,
                top_p,
            } => {
                let is_fine = temperature > 0.0 && temperature.is_finite();
                ModelError::require(is_fine, "temperature", "above 0", temperature)?;
                ModelError::at_least("top_k", 1, top_k.unwrap_or(1))?;
                let share = top_p.unwrap_or(1.0);
                let is_fine = share > 0.0 && share <= 1.0;
                ModelError::require(is_fine, "top_p", "above 0 and at most 1", share)?;
            }
        }
        ModelError::at_least("max_length", 1, self.max_length)?;
        let allowed = format!("at most {MOST_TOKENS}");
        let is_fine = self.max_length <= MOST_TOKENS;
        ModelError::require(is_fine, "max_length", allowed, self.max_length)?;
        let (least, most) = (self.min_length, self.max_length);
        let allowed = format!("at most max_length = {most}");
        ModelError::require(least <= most, "min_length", allowed, least)?;
        ModelError::at_least("no_repeat_ngram", 1, self.no_repeat_ngram.unwrap_or(1))?;
        let of_vocabulary = |field, token: u32| {
            let allowed = format!("below the {vocabulary} tokens there are");
            ModelError::require((token as usize) < vocabulary, field, allowed, token)
        };
        if let Some(end) = self.end {
            of_vocabulary("end", end)?;
            let allowed = "another token than the end";
            ModelError::require(!self.never.contains(&end), "never", allowed, end)?;
        }
        (self.never.iter()).try_for_each(|token| of_vocabulary("never", *token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::refused;

    fn beam(length_penalty: f64, n_best: usize) -> Strategy {
        Strategy::Beam {
            beams: 4,
            length_penalty,
            n_best,
        }
    }

    #[test]
    fn what_is_out_of_range_is_named_with_what_it_may_be() {
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
                end must be below the 10 tokens there are, got 10
            {"never": [0, 12]}
                never must be below the 10 tokens there are, got 12
            {"never": [0, 3], "end": 3}
                never must be another token than the end, got 3
        "#;
        let fine = GenerateConfig::new(Strategy::Sample {
            temperature: 0.5,
            top_k: Some(3),
            top_p: Some(1.0),
        });
        let fine = fine.with_end(Some(9)).with_max_length(3).with_min_length(3);
        refused(&fine, |config| config.check(10), cases);
        for (strategy, message) in [
            (
                beam(f64::NAN, 1),
                "length_penalty must be at least 0, got NaN",
            ),
            (
                Strategy::sample(f64::INFINITY),
                "temperature must be above 0, got inf",
            ),
        ] {
            let error = GenerateConfig::new(strategy).check(10).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_file_says_what_is_not_as_usual() {
        let read = |text: &str| serde_json::from_str::<GenerateConfig>(text);
        let config = read(r#"{"strategy": {"kind": "beam", "n_best": 2}, "end": 3}"#);
        let expected = GenerateConfig::new(beam(0.0, 2)).with_end(Some(3));
        assert_eq!(config.expect("it is a config"), expected);
        let config = read(r#"{"strategy": {"kind": "sample", "top_k": 5}}"#);
        let sampled = Strategy::Sample {
            temperature: 1.0,
            top_k: Some(5),
            top_p: None,
        };
        assert_eq!(config.expect("it is a config").strategy, sampled);
        assert_eq!(read("{}").expect("it is a config"), Default::default());
        for wrong in [
            r#"{"max_lenght": 3}"#,
            r#"{"strategy": {"kind": "beam", "width": 2}}"#,
            r#"{"strategy": {"kind": "widest"}}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let written = serde_json::to_string(&expected).expect("a config can be written");
        assert_eq!(read(&written).expect("and read again"), expected);
    }
}
