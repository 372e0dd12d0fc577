//! How a hierarchical attention network is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer, LinearConfig};
use burn::tensor::Device;
use zoo_kernels::recurrent::{Cell, Direction, RecurrentConfig};

use super::Han;
use crate::{ContextAttentionConfig, ModelError};

/// Configuration of a [`Han`]; `init` makes one. The defaults are the paper's.
///
/// ```
/// # use zoo_models::HanConfig;
/// // 10,000 words, 5 classes.
/// let config = HanConfig::new(10_000, 5).with_dropout(0.1);
/// ```
#[derive(Config, Debug)]
pub struct HanConfig {
    /// Words there are.
    pub vocabulary: usize,
    /// Classes a document may be of.
    pub classes: usize,
    /// Numbers of a word. Default: 200.
    #[config(default = 200)]
    pub d_embedding: usize,
    /// Numbers of the word encoder's state, in each direction. Default: 50.
    #[config(default = 50)]
    pub d_word: usize,
    /// Numbers of the sentence encoder's state, in each direction. Default: 50.
    #[config(default = 50)]
    pub d_sentence: usize,
    /// Numbers that words, and sentences, are compared by. Default: 100.
    #[config(default = 100)]
    pub d_attention: usize,
    /// What encoders are made of. Default: GRU.
    #[config(default = "Cell::Gru")]
    pub cell: Cell,
    /// The share of numbers forgotten while training, of words, of sentences and of the
    /// document. Default: none.
    #[config(default = 0.0)]
    pub dropout: f64,
}

impl HanConfig {
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
        let encoder = |d_input: usize, d_hidden: usize| {
            RecurrentConfig::new(d_input, d_hidden)
                .with_cell(self.cell)
                .with_direction(Direction::Both)
                .init(device)
        };
        let attention = |d_model| ContextAttentionConfig::new(d_model, self.d_attention);
        Ok(Han {
            embedding: EmbeddingConfig::new(self.vocabulary, self.d_embedding)
                .with_initializer(Initializer::Normal {
                    mean: 0.0,
                    std: 0.1,
                })
                .init(device),
            word_encoder: encoder(self.d_embedding, self.d_word),
            word_attention: attention(2 * self.d_word).init(device),
            sentence_encoder: encoder(2 * self.d_word, self.d_sentence),
            sentence_attention: attention(2 * self.d_sentence).init(device),
            classifier: LinearConfig::new(2 * self.d_sentence, self.classes).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            config: self.clone(),
        })
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError::Range`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        let sizes = [
            ("vocabulary", self.vocabulary),
            ("classes", self.classes),
            ("d_embedding", self.d_embedding),
            ("d_word", self.d_word),
            ("d_sentence", self.d_sentence),
            ("d_attention", self.d_attention),
        ];
        for (field, size) in sizes {
            ModelError::at_least(field, 1, size)?;
        }
        ModelError::share("dropout", self.dropout)
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
