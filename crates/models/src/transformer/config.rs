//! How a Transformer is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_attention::MechanismConfig;
use zoo_spec::keys::check_keys;
use zoo_spec::{Norm, TransformerSpec, Tying};

use super::{Decoder, Encoder, Transformer};
use crate::ModelError;
use crate::blocks::{
    AddedPositions, LayerPlan, check_cross_mechanism, check_encoder_mechanism, linear,
};

/// Configuration of a [`Transformer`]. [`base`](Self::base) has the sizes of the paper's base model.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{Norm, TransformerConfig};
/// let config = TransformerConfig::new(8000, 6000)
///     .with_norm(Norm::Pre)
///     .with_encoder_attention(Mechanism::Longformer.into())
///     .with_cross_attention(Mechanism::Additive.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TransformerConfig {
    /// Tokens of the source vocabulary.
    pub source_vocabulary: usize,
    /// Tokens of the target vocabulary.
    pub target_vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: TransformerSpec,
}

impl Config for TransformerConfig {}

zoo_spec::transformer_keys!(setters TransformerConfig);

impl TransformerConfig {
    /// A Transformer for two vocabularies of these sizes.
    pub fn new(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self {
            source_vocabulary,
            target_vocabulary,
            spec: TransformerSpec::default(),
        }
    }

    /// The base model of the paper: six layers of 512, eight heads, normalised after each sublayer.
    pub fn base(source_vocabulary: usize, target_vocabulary: usize) -> Self {
        Self::new(source_vocabulary, target_vocabulary)
            .with_d_model(512)
            .with_heads(8)
            .with_layers(6)
            .with_norm(Norm::Post)
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        let [source, target] = [self.source_vocabulary, self.target_vocabulary];
        ModelError::at_least("source_vocabulary", 1, source)?;
        ModelError::at_least("target_vocabulary", 1, target)?;
        let spec = &self.spec;
        check_keys(spec, TransformerSpec::KEYS)?;
        if spec.tying == Tying::All && source != target {
            return Err(ModelError::Range {
                field: "tying".to_owned(),
                allowed: format!(
                    "none or decoder where source_vocabulary = {source} and \
                     target_vocabulary = {target} differ"
                ),
                got: spec.tying.word().to_owned(),
            });
        }
        let plan = self.plan();
        check_encoder_mechanism("encoder_attention", &spec.encoder_attention)?;
        check_cross_mechanism("cross_attention", &spec.cross_attention)?;
        plan.check_self("encoder_attention", &spec.encoder_attention)?;
        plan.check_self("decoder_attention", &spec.decoder_attention)?;
        plan.check_cross("cross_attention", &spec.cross_attention)
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
        let (plan, spec) = (self.plan(), &self.spec);
        let [encoder_layers, decoder_layers] = spec.encoder_and_decoder_layers();
        // As large as a head needs them; the scale makes them as large as positions are.
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (spec.d_model as f64).sqrt(),
        };
        let embedding = |vocabulary: usize| {
            EmbeddingConfig::new(vocabulary, spec.d_model)
                .with_initializer(vectors.clone())
                .init(device)
        };
        let positions = || AddedPositions::new(spec.positions, spec.d_model, &vectors, device);
        let norm = || spec.final_norm.then(|| plan.layer_norm(device));
        let encoder_layer = |_| plan.encoder_layer(&spec.encoder_attention, device);
        let decoder_layer =
            |_| plan.decoder_layer(&spec.decoder_attention, &spec.cross_attention, device);
        let to_tokens = [spec.d_model, self.target_vocabulary];
        Ok(Transformer {
            source_embedding: (spec.tying != Tying::All).then(|| embedding(self.source_vocabulary)),
            source_positions: positions(),
            target_embedding: embedding(self.target_vocabulary),
            target_positions: positions(),
            dropout: DropoutConfig::new(spec.dropout).init(),
            encoder: Encoder {
                layers: (0..encoder_layers).map(encoder_layer).collect(),
                norm: norm(),
            },
            decoder: Decoder {
                layers: (0..decoder_layers).map(decoder_layer).collect(),
                norm: norm(),
            },
            head: (spec.tying == Tying::None)
                .then(|| linear(to_tokens, spec.bias, &plan.initializer, device)),
            config: self.clone(),
        })
    }

    pub(super) fn plan(&self) -> LayerPlan {
        LayerPlan::new((&self.spec).into(), self.spec.norm)
    }
}

#[cfg(test)]
mod tests {
    use zoo_attention::Mechanism;
    use zoo_attention::mechanisms::LocalM;
    use zoo_spec::PositionEncoding;

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
            fine().with_encoder_layers(Some(0)),
            "encoder_layers must be at least 1, got 0",
        );
        refused(
            fine().with_decoder_layers(Some(0)),
            "decoder_layers must be at least 1, got 0",
        );
        refused(
            fine().with_heads(3),
            "encoder_attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given",
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
            fine().with_positions(PositionEncoding::learned(0)),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            fine().with_kv_heads(Some(3)),
            "encoder_attention: heads = 2 must be a multiple of kv_heads = 3",
        );
        refused(
            fine()
                .with_decoder_attention(Mechanism::Linear.into())
                .with_positions(PositionEncoding::Alibi),
            "decoder_attention: mechanism linear does not support ALiBi: it computes no scores or weights",
        );
        // PositionEncoding are self-attention's alone: across, a linear one does not mind.
        let across = fine()
            .with_cross_attention(Mechanism::Linear.into())
            .with_positions(PositionEncoding::Alibi);
        assert_eq!(across.check(), Ok(()));
        refused(
            across.with_attention_dropout(0.1),
            "cross_attention: mechanism linear does not support dropout: it computes no scores or weights",
        );
        refused(
            fine().with_encoder_attention(Mechanism::Retention.into()),
            "encoder_attention = retention cannot be used for bidirectional attention: it is causal",
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
            let checked = fine().with_cross_attention(mechanism.into()).check();
            match checked {
                Ok(()) => assert!(!refused.contains(&mechanism), "{mechanism}"),
                Err(ModelError::Mechanism {
                    field, mechanism, ..
                }) => {
                    assert_eq!(field, "cross_attention");
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
            .with_cross_attention(MechanismConfig::LocalM(LocalM { window: 3 }));
        let text = serde_json::to_string(&config).expect("plain data");
        assert!(text.contains(r#""norm":"pre""#), "{text}");
        assert!(text.contains(r#""tying":"none""#), "{text}");
        let read: TransformerConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
}
