//! How a hierarchical attention network is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer, LinearConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_kernels::recurrent::{Direction, RecurrentConfig};
use zoo_spec::keys::check_keys;
use zoo_spec::{Cell, HanSpec};

use super::Han;
use crate::{ContextAttentionConfig, ModelError};

/// Configuration of a [`Han`]; `init` makes one. The default sizes are the paper's.
///
/// ```
/// # use zoo_models::HanConfig;
/// // 10,000 words, 5 classes.
/// let config = HanConfig::new(10_000, 5).with_dropout(0.1);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HanConfig {
    /// Words of the vocabulary.
    pub vocabulary: usize,
    /// Classes.
    pub classes: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: HanSpec,
}

impl Config for HanConfig {}

zoo_spec::han_keys!(setters HanConfig);

impl HanConfig {
    /// A hierarchical attention network for so many words and classes.
    pub fn new(vocabulary: usize, classes: usize) -> Self {
        Self {
            vocabulary,
            classes,
            spec: HanSpec::default(),
        }
    }

    /// Makes the model.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Han {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("HAN: {error}"))
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Han, ModelError> {
        self.check()?;
        let spec = &self.spec;
        let encoder = |d_input: usize, d_hidden: usize| {
            RecurrentConfig::new(d_input, d_hidden)
                .with_cell(spec.cell)
                .with_direction(Direction::Both)
                .init(device)
        };
        let attention = |d_model| ContextAttentionConfig::new(d_model, spec.d_attention);
        Ok(Han {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_embedding)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: 0.1,
                })
                .init(device),
            word_encoder: encoder(spec.d_embedding, spec.d_word),
            word_attention: attention(2 * spec.d_word).init(device),
            sentence_encoder: encoder(2 * spec.d_word, spec.d_sentence),
            sentence_attention: attention(2 * spec.d_sentence).init(device),
            classifier: LinearConfig::new(2 * spec.d_sentence, self.classes).init(device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        })
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        Ok(check_keys(&self.spec, HanSpec::KEYS)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_named() {
        let config = HanConfig::new(10, 2);
        assert_eq!(config.check(), Ok(()));
        for (config, said) in [
            (HanConfig::new(0, 2), "vocabulary must be at least 1, got 0"),
            (
                config.clone().with_d_word(0),
                "d_word must be at least 1, got 0",
            ),
            (
                config.with_dropout(-0.5),
                "dropout must be at least 0 and below 1, got -0.5",
            ),
        ] {
            let error = config.check().expect_err(said);
            assert_eq!(error.to_string(), said);
        }
    }
}
