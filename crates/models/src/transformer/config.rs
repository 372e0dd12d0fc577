//! How a Transformer is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_attention::MechanismConfig;

use super::{Decoder, Encoder, Transformer};
use crate::ModelError;
use crate::blocks::{
    Activation, AddedPositions, LayerPlan, Norm, PositionsConfig, check_cross_mechanism,
    check_encoder_mechanism, d_feed_forward, linear,
};

/// Configuration of a [`Transformer`]. The defaults are the paper's base model, with the
/// target's embedding alone shared with the head, and a norm after the last layers.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{Norm, TransformerConfig};
/// let config = TransformerConfig::new(8000, 6000)
///     .with_norm(Norm::Pre)
///     .with_encoder_mechanism(Mechanism::Longformer.into())
///     .with_cross_mechanism(Mechanism::Additive.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Config, Debug)]
pub struct TransformerConfig {
    /// How many tokens the source has.
    pub source_vocabulary: usize,
    /// How many tokens the target has.
    pub target_vocabulary: usize,
    /// Numbers of each place. Default: 512.
    #[config(default = 512)]
    pub d_model: usize,
    /// Query heads. Default: 8.
    #[config(default = 8)]
    pub heads: usize,
    /// Key and value heads of every attention; `None` is as many as its mechanism says, else
    /// one for each query head.
    pub kv_heads: Option<usize>,
    /// Layers of the encoder. Default: 6.
    #[config(default = 6)]
    pub encoder_layers: usize,
    /// Layers of the decoder. Default: 6.
    #[config(default = 6)]
    pub decoder_layers: usize,
    /// Numbers between the matrices of a feed-forward network; `None` is `4 d_model`.
    pub d_feed_forward: Option<usize>,
    /// Where layers normalise. Default: after each part.
    #[config(default = "Norm::Post")]
    pub norm: Norm,
    /// Whether there is a norm after the last layer of encoder and decoder, as PyTorch's
    /// `nn.Transformer` has it. Default: yes.
    #[config(default = true)]
    pub final_norm: bool,
    /// What feed-forward networks do between their matrices. Default: relu.
    #[config(default = "Activation::Relu")]
    pub activation: Activation,
    /// How it learns where tokens are. Default: by waves.
    #[config(default = "PositionsConfig::Sinusoidal")]
    pub positions: PositionsConfig,
    /// What is shared among embeddings and head. Default: the target's embedding and the head.
    #[config(default = "Tying::Decoder")]
    pub tying: Tying,
    /// Whether embedded tokens are multiplied by `sqrt(d_model)`. Default: yes.
    #[config(default = true)]
    pub scale_embeddings: bool,
    /// How the source attends to itself. Default: flash.
    #[config(default = "zoo_attention::Mechanism::Flash.into()")]
    pub encoder_mechanism: MechanismConfig,
    /// How the target attends to itself. Default: flash.
    #[config(default = "zoo_attention::Mechanism::Flash.into()")]
    pub decoder_mechanism: MechanismConfig,
    /// How the target attends to the source. Default: flash.
    #[config(default = "zoo_attention::Mechanism::Flash.into()")]
    pub cross_mechanism: MechanismConfig,
    /// The share of numbers forgotten while training: of embedded tokens, of what each part
    /// of a layer adds and within its feed-forward network. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The share forgotten between the matrices of feed-forward networks; `None` is `dropout`.
    pub feed_forward_dropout: Option<f64>,
    /// The share of attention's weights forgotten while training. Default: none.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Whether matrices and norms have a bias. Default: yes.
    #[config(default = true)]
    pub bias: bool,
    /// What norms add to a variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// Which vectors are one and the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tying {
    /// None.
    None,
    /// Those that the target is embedded and predicted with: Press and Wolf, [Using the
    /// Output Embedding](https://arxiv.org/abs/1608.05859), 2016.
    Decoder,
    /// Those of the source, too: for one vocabulary.
    All,
}

impl Tying {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Decoder => "decoder",
            Self::All => "all",
        }
    }
}

impl TransformerConfig {
    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        for (field, got) in [
            ("source_vocabulary", self.source_vocabulary),
            ("target_vocabulary", self.target_vocabulary),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
        ] {
            ModelError::at_least(field, 1, got)?;
        }
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        if self.tying == Tying::All && source != target {
            return Err(ModelError::Range {
                field: "tying",
                allowed: format!(
                    "none or decoder where source_vocabulary = {source} and \
                     target_vocabulary = {target} differ"
                ),
                got: self.tying.word().to_owned(),
            });
        }
        let plan = self.plan();
        plan.check()?;
        check_encoder_mechanism("encoder_mechanism", &self.encoder_mechanism)?;
        check_cross_mechanism("cross_mechanism", &self.cross_mechanism)?;
        plan.check_self("encoder_mechanism", &self.encoder_mechanism)?;
        plan.check_self("decoder_mechanism", &self.decoder_mechanism)?;
        plan.check_cross("cross_mechanism", &self.cross_mechanism)
    }

    /// Makes the model.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Transformer {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("Transformer: {error}"))
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Transformer, ModelError> {
        self.check()?;
        let plan = self.plan();
        // As large as a head needs them; the scale makes them as large as positions are.
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (self.d_model as f64).sqrt(),
        };
        let embedding = |vocabulary: usize| {
            EmbeddingConfig::new(vocabulary, self.d_model)
                .with_initializer(vectors.clone())
                .init(device)
        };
        let positions = || AddedPositions::new(self.positions, self.d_model, &vectors, device);
        let norm = || self.final_norm.then(|| plan.layer_norm(device));
        let encoder_layer = |_| plan.encoder_layer(&self.encoder_mechanism, device);
        let decoder_layer =
            |_| plan.decoder_layer(&self.decoder_mechanism, &self.cross_mechanism, device);
        let to_tokens = [self.d_model, self.target_vocabulary];
        Ok(Transformer {
            source_embedding: (self.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            source_positions: positions(),
            target_embedding: embedding(self.target_vocabulary),
            target_positions: positions(),
            dropout: DropoutConfig::new(self.dropout).init(),
            encoder: Encoder {
                layers: (0..self.encoder_layers).map(encoder_layer).collect(),
                norm: norm(),
            },
            decoder: Decoder {
                layers: (0..self.decoder_layers).map(decoder_layer).collect(),
                norm: norm(),
            },
            head: (self.tying == Tying::None)
                .then(|| linear(to_tokens, self.bias, &plan.initializer, device)),
            config: self.clone(),
        })
    }

    pub(super) fn plan(&self) -> LayerPlan {
        let initializer = Initializer::XavierUniform { gain: 1.0 };
        LayerPlan {
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            d_feed_forward: d_feed_forward(self.d_feed_forward, self.d_model),
            norm: self.norm,
            activation: self.activation,
            positions: self.positions,
            dropout: self.dropout,
            feed_forward_dropout: self.feed_forward_dropout.unwrap_or(self.dropout),
            attention_dropout: self.attention_dropout,
            bias: self.bias,
            epsilon: self.epsilon,
            of_results: initializer.clone(),
            initializer,
        }
    }
}

#[cfg(test)]
mod tests {
    use zoo_attention::Mechanism;
    use zoo_attention::mechanisms::LocalM;

    use super::*;

    fn refused(config: TransformerConfig, message: &str) {
        let error = config.check().expect_err(message);
        assert_eq!(error.to_string(), message);
    }

    fn fine() -> TransformerConfig {
        TransformerConfig::new(5, 7).with_d_model(8).with_heads(2)
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let new = TransformerConfig::new;
        assert_eq!(fine().check(), Ok(()));
        refused(new(0, 7), "source_vocabulary must be at least 1, got 0");
        refused(new(5, 0), "target_vocabulary must be at least 1, got 0");
        refused(
            fine().with_encoder_layers(0),
            "encoder_layers must be at least 1, got 0",
        );
        refused(
            fine().with_decoder_layers(0),
            "decoder_layers must be at least 1, got 0",
        );
        refused(
            fine().with_heads(3),
            "d_model must be a multiple of heads = 3, got 8",
        );
        refused(
            fine().with_dropout(-0.1),
            "dropout must be at least 0 and below 1, got -0.1",
        );
        refused(
            fine().with_tying(Tying::All),
            "tying must be none or decoder where source_vocabulary = 5 and \
             target_vocabulary = 7 differ, got all",
        );
        refused(
            fine().with_positions(PositionsConfig::Learned { longest: 0 }),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            fine().with_kv_heads(Some(3)),
            "encoder_mechanism: heads = 2 must be a multiple of kv_heads = 3",
        );
        refused(
            fine()
                .with_decoder_mechanism(Mechanism::Linear.into())
                .with_positions(PositionsConfig::Alibi),
            "decoder_mechanism: mechanism linear does not support ALiBi: it computes no scores or weights",
        );
        // Positions are self-attention's alone: across, a linear one does not mind.
        let across = fine()
            .with_cross_mechanism(Mechanism::Linear.into())
            .with_positions(PositionsConfig::Alibi);
        assert_eq!(across.check(), Ok(()));
        refused(
            across.with_attention_dropout(0.1),
            "cross_mechanism: mechanism linear does not support dropout: it computes no scores or weights",
        );
        refused(
            fine().with_encoder_mechanism(Mechanism::Retention.into()),
            "encoder_mechanism = retention cannot be used for bidirectional attention: it is causal",
        );
    }

    #[test]
    fn mechanisms_that_go_by_places_cannot_look_across() {
        let refused = [
            Mechanism::SlidingWindow,
            Mechanism::Block,
            Mechanism::Strided,
            Mechanism::Fixed,
            Mechanism::Longformer,
            Mechanism::BigBird,
            Mechanism::Lsh,
            Mechanism::Retention,
        ];
        for mechanism in Mechanism::ALL {
            let checked = fine().with_cross_mechanism(mechanism.into()).check();
            match checked {
                Ok(()) => assert!(!refused.contains(&mechanism), "{mechanism}"),
                Err(ModelError::Mechanism {
                    field, mechanism, ..
                }) => {
                    assert_eq!(field, "cross_mechanism");
                    assert!(refused.contains(&mechanism), "{mechanism}");
                }
                Err(other) => panic!("{mechanism}: {other}"),
            }
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let config = fine()
            .with_norm(Norm::Pre)
            .with_tying(Tying::None)
            .with_cross_mechanism(MechanismConfig::LocalM(LocalM { window: 3 }));
        let text = serde_json::to_string(&config).expect("plain data");
        assert!(text.contains(r#""norm":"pre""#), "{text}");
        assert!(text.contains(r#""tying":"none""#), "{text}");
        let read: TransformerConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
}
