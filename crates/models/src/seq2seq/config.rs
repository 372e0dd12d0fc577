//! How a Seq2Seq is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, LinearConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_kernels::recurrent::{Direction, RecurrentConfig};
use zoo_spec::keys::check_keys;
use zoo_spec::{Alignment, Feeding, Seq2SeqSpec, Tying};

use super::Seq2Seq;
use super::alignment::SourceAttention;
use crate::ModelError;

/// Configuration of a [`Seq2Seq`]. The defaults are Luong's input feeding with Bahdanau's score.
///
/// ```
/// # use zoo_models::{Alignment, Seq2SeqConfig};
/// let config = Seq2SeqConfig::new(8000, 6000)
///     .with_d_hidden(256)
///     .with_attention(Alignment::local_p(5));
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seq2SeqConfig {
    /// Tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: Seq2SeqSpec,
}

impl Config for Seq2SeqConfig {}

zoo_spec::seq2seq_keys!(setters Seq2SeqConfig);

impl Seq2SeqConfig {
    /// A recurrent model for two vocabularies of these sizes.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: Seq2SeqSpec::default(),
        }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("source_vocabulary", 1, self.source_vocabulary)?;
        ModelError::at_least("target_vocabulary", 1, self.target_vocabulary)?;
        check_keys(&self.spec, Seq2SeqSpec::KEYS)?;
        if !self.spec.d_hidden.is_multiple_of(2) {
            return Err(ModelError::Range {
                field: "d_hidden".to_owned(),
                allowed: "even, half for each direction of the encoder".to_owned(),
                got: self.spec.d_hidden.to_string(),
            });
        }
        self.check_tying()
    }

    fn check_tying(&self) -> Result<(), ModelError> {
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        let [embedding, hidden] = [self.spec.d_embedding, self.spec.d_hidden];
        let allowed = match self.spec.tying {
            Tying::All if source != target => format!(
                "none or decoder where source_vocabulary = {source} and target_vocabulary = \
                 {target} differ"
            ),
            Tying::Decoder | Tying::All if embedding != hidden => {
                format!("none where d_embedding = {embedding} and d_hidden = {hidden} differ")
            }
            _ => return Ok(()),
        };
        Err(ModelError::Range {
            field: "tying".to_owned(),
            allowed,
            got: self.spec.tying.word().to_owned(),
        })
    }

    /// Makes the model.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Seq2Seq {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("Seq2Seq: {error}"))
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Seq2Seq, ModelError> {
        self.check()?;
        let spec = &self.spec;
        let &Seq2SeqSpec {
            d_embedding,
            d_hidden,
            ..
        } = spec;
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        let embedding =
            |vocabulary: usize| EmbeddingConfig::new(vocabulary, d_embedding).init(device);
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to).with_bias(bias).init(device)
        };
        let fed = match spec.feeding {
            Feeding::None => 0,
            Feeding::Input | Feeding::Context => d_hidden,
        };
        let encoder = RecurrentConfig::new(d_embedding, d_hidden / 2)
            .with_direction(Direction::Both)
            .with_layers(encoder_layers)
            .with_dropout(spec.dropout);
        let decoder = RecurrentConfig::new(d_embedding + fed, d_hidden)
            .with_layers(decoder_layers)
            .with_dropout(spec.dropout);
        let bridge = |_| linear(d_hidden, d_hidden, true);
        Ok(Seq2Seq {
            source_embedding: (spec.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            target_embedding: embedding(self.target_vocabulary),
            encoder: encoder.init(device),
            bridge: (0..decoder_layers).map(bridge).collect(),
            decoder: decoder.init(device),
            attention: SourceAttention::new(spec.attention, d_hidden, device),
            combination: linear(2 * d_hidden, d_hidden, false),
            head: (spec.tying == Tying::None)
                .then(|| linear(d_hidden, self.target_vocabulary, true)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            config: self.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(config: Seq2SeqConfig, message: &str) {
        let error = config.check().expect_err(message);
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let new = Seq2SeqConfig::new;
        assert_eq!(new(5, 7).check(), Ok(()));
        refused(new(0, 7), "source_vocabulary must be at least 1, got 0");
        refused(new(5, 0), "target_vocabulary must be at least 1, got 0");
        refused(
            new(5, 7).with_d_embedding(0),
            "d_embedding must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_d_hidden(0),
            "d_hidden must be at least 2, got 0",
        );
        refused(
            new(5, 7).with_d_hidden(9),
            "d_hidden must be even, half for each direction of the encoder, got 9",
        );
        refused(
            new(5, 7).with_encoder_layers(Some(0)),
            "encoder_layers must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_decoder_layers(Some(0)),
            "decoder_layers must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_attention(Alignment::local_p(0)),
            "attention.window must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_dropout(1.0),
            "dropout must be at least 0 and below 1, got 1.0",
        );
        refused(
            new(5, 7).with_tying(Tying::All),
            "tying must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 \
             differ, got all",
        );
        refused(
            new(5, 7).with_tying(Tying::Decoder),
            "tying must be none where d_embedding = 128 and d_hidden = 256 differ, got decoder",
        );
    }
}
