//! How a Seq2Seq is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, LinearConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_kernels::recurrent::{Direction, RecurrentConfig};

use super::Seq2Seq;
use super::alignment::Alignment;
use crate::{ModelError, Tying};

/// Configuration of a [`Seq2Seq`]. The defaults are Luong's way of feeding with Bahdanau's
/// score.
///
/// ```
/// # use zoo_models::{AlignmentConfig, Seq2SeqConfig};
/// let config = Seq2SeqConfig::new(8000, 6000)
///     .with_d_hidden(256)
///     .with_attention(AlignmentConfig::LocalP { window: 5 });
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Config, Debug)]
pub struct Seq2SeqConfig {
    /// How many tokens the source has.
    pub source_vocabulary: usize,
    /// How many tokens the target has.
    pub target_vocabulary: usize,
    /// Numbers of an embedded token. Default: 256.
    #[config(default = 256)]
    pub d_embedding: usize,
    /// Numbers of a state of the decoder. The encoder has half of them for each direction, so
    /// that both are of one size. Default: 512.
    #[config(default = 512)]
    pub d_hidden: usize,
    /// Layers of the encoder. Default: 1.
    #[config(default = 1)]
    pub encoder_layers: usize,
    /// Layers of the decoder. Default: 1.
    #[config(default = 1)]
    pub decoder_layers: usize,
    /// How the decoder looks at the source. Default: additive.
    #[config(default = "AlignmentConfig::Additive")]
    pub attention: AlignmentConfig,
    /// What of it goes into the decoder's state. Default: what the last place came to.
    #[config(default = "Feeding::Input")]
    pub feeding: Feeding,
    /// What is shared among embeddings and head. Default: nothing.
    #[config(default = "Tying::None")]
    pub tying: Tying,
    /// The share of numbers forgotten while training: of embedded tokens, between layers, and
    /// before the head. Default: 0.2.
    #[config(default = 0.2)]
    pub dropout: f64,
}

/// How a decoder looks at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlignmentConfig {
    /// By a small network: `v · tanh(W₁ h + W₂ s)`. Luong calls it `concat`.
    #[serde(alias = "concat")]
    Additive,
    /// By the product: `h · s`.
    Dot,
    /// By a product through a matrix: `h · W s`. Elsewhere it is `multiplicative`.
    #[serde(alias = "multiplicative")]
    General,
    /// The same, at the source's places around the number of the target's.
    LocalM {
        /// Places on either side.
        window: usize,
    },
    /// The same, around a place that is predicted; the nearer the more.
    LocalP {
        /// Places on either side; twice the deviation of their weights.
        window: usize,
    },
}

impl AlignmentConfig {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Additive => "additive",
            Self::Dot => "dot",
            Self::General => "general",
            Self::LocalM { .. } => "local-m",
            Self::LocalP { .. } => "local-p",
        }
    }
}

/// What of attention goes into the decoder's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feeding {
    /// Nothing: all states are computed at once, and attended from afterwards.
    None,
    /// What the last place came to, `h~`, beside the next token: Luong's input feeding.
    Input,
    /// What the last state sees of the source, beside the next token: Bahdanau's.
    Context,
}

impl Feeding {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Input => "input",
            Self::Context => "context",
        }
    }
}

impl Seq2SeqConfig {
    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        for (field, got) in [
            ("source_vocabulary", self.source_vocabulary),
            ("target_vocabulary", self.target_vocabulary),
            ("d_embedding", self.d_embedding),
            ("d_hidden", self.d_hidden),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
        ] {
            ModelError::at_least(field, 1, got)?;
        }
        if !self.d_hidden.is_multiple_of(2) {
            return Err(ModelError::Range {
                field: "d_hidden",
                allowed: "even, half for each direction of the encoder".to_owned(),
                got: self.d_hidden.to_string(),
            });
        }
        if let AlignmentConfig::LocalP { window } = self.attention {
            ModelError::at_least("attention.window", 1, window)?;
        }
        ModelError::share("dropout", self.dropout)?;
        self.check_tying()
    }

    fn check_tying(&self) -> Result<(), ModelError> {
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        let [embedding, hidden] = [self.d_embedding, self.d_hidden];
        let allowed = match self.tying {
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
            field: "tying",
            allowed,
            got: self.tying.word().to_owned(),
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
        let &Self {
            d_embedding,
            d_hidden,
            ..
        } = self;
        let embedding =
            |vocabulary: usize| EmbeddingConfig::new(vocabulary, d_embedding).init(device);
        let linear = |from: usize, to: usize, bias: bool| {
            LinearConfig::new(from, to).with_bias(bias).init(device)
        };
        let fed = match self.feeding {
            Feeding::None => 0,
            Feeding::Input | Feeding::Context => d_hidden,
        };
        let encoder = RecurrentConfig::new(d_embedding, d_hidden / 2)
            .with_direction(Direction::Both)
            .with_layers(self.encoder_layers)
            .with_dropout(self.dropout);
        let decoder = RecurrentConfig::new(d_embedding + fed, d_hidden)
            .with_layers(self.decoder_layers)
            .with_dropout(self.dropout);
        let bridge = |_| linear(d_hidden, d_hidden, true);
        Ok(Seq2Seq {
            source_embedding: (self.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            target_embedding: embedding(self.target_vocabulary),
            encoder: encoder.init(device),
            bridge: (0..self.decoder_layers).map(bridge).collect(),
            decoder: decoder.init(device),
            attention: Alignment::new(self.attention, d_hidden, device),
            combination: linear(2 * d_hidden, d_hidden, false),
            head: (self.tying == Tying::None)
                .then(|| linear(d_hidden, self.target_vocabulary, true)),
            dropout: DropoutConfig::new(self.dropout).init(),
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
            "d_hidden must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_d_hidden(9),
            "d_hidden must be even, half for each direction of the encoder, got 9",
        );
        refused(
            new(5, 7).with_encoder_layers(0),
            "encoder_layers must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_decoder_layers(0),
            "decoder_layers must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_attention(AlignmentConfig::LocalP { window: 0 }),
            "attention.window must be at least 1, got 0",
        );
        refused(
            new(5, 7).with_dropout(1.0),
            "dropout must be at least 0 and below 1, got 1",
        );
        refused(
            new(5, 7).with_tying(Tying::All),
            "tying must be none or decoder where source_vocabulary = 5 and target_vocabulary = 7 \
             differ, got all",
        );
        refused(
            new(5, 7).with_tying(Tying::Decoder),
            "tying must be none where d_embedding = 256 and d_hidden = 512 differ, got decoder",
        );
    }

    #[test]
    fn words_are_those_of_files() {
        let read = |text: &str| serde_json::from_str::<AlignmentConfig>(text).ok();
        for kind in [
            AlignmentConfig::Additive,
            AlignmentConfig::Dot,
            AlignmentConfig::General,
        ] {
            assert_eq!(serde_json::json!(kind), kind.word());
        }
        assert_eq!(read(r#""concat""#), Some(AlignmentConfig::Additive));
        assert_eq!(read(r#""multiplicative""#), Some(AlignmentConfig::General));
        let local = AlignmentConfig::LocalM { window: 3 };
        assert_eq!(read(r#"{"local-m": {"window": 3}}"#), Some(local));
        for feeding in [Feeding::None, Feeding::Input, Feeding::Context] {
            assert_eq!(serde_json::json!(feeding), feeding.word());
        }
    }
}
