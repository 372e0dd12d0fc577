//! How a GPT is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_attention::MechanismConfig;
use zoo_spec::keys::check_keys;
use zoo_spec::{GptSpec, Norm};

use super::Gpt;
use crate::ModelError;
use crate::blocks::{AddedPositions, LayerPlan, linear};

/// Configuration of a [`Gpt`]. The defaults are GPT-2's but for its sizes.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{GptConfig, PositionEncoding};
/// // 12 layers of width 768, 12 query heads, 4 key and value heads, a window of keys.
/// let config = GptConfig::new(50_257, 768, 12, 12)
///     .with_kv_heads(Some(4))
///     .with_positions(PositionEncoding::rotary(1e4))
///     .with_attention(Mechanism::SlidingWindow.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GptConfig {
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: GptSpec,
}

impl Config for GptConfig {}

zoo_spec::gpt_keys!(setters GptConfig);

/// How GPT-2 draws everything.
const SPREAD: f64 = 0.02;

impl GptConfig {
    /// A GPT for a vocabulary of this size.
    pub fn new(vocabulary: usize, d_model: usize, heads: usize, layers: usize) -> Self {
        let spec = GptSpec {
            d_model,
            heads,
            layers,
            ..GptSpec::default()
        };
        Self { vocabulary, spec }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        check_keys(&self.spec, GptSpec::KEYS)?;
        self.plan().check_self("attention", &self.spec.attention)
    }

    /// Makes the model.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Gpt {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("GPT: {error}"))
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Gpt, ModelError> {
        self.check()?;
        let (plan, spec) = (self.plan(), &self.spec);
        let drawn = normal(SPREAD);
        let layer = |_| plan.encoder_layer(&spec.attention, device);
        Ok(Gpt {
            embedding: EmbeddingConfig::new(self.vocabulary, spec.d_model)
                .with_initializer(drawn.clone())
                .init(device),
            positions: AddedPositions::new(spec.positions, spec.d_model, &drawn, device),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: plan.layer_norm(device),
            head: (!spec.tied)
                .then(|| linear([spec.d_model, self.vocabulary], false, &drawn, device)),
            config: self.clone(),
        })
    }

    pub(super) fn plan(&self) -> LayerPlan {
        // Each layer adds twice to the residual stream, whose variance should not grow with depth.
        let parts = (2 * self.spec.layers.max(1)) as f64;
        LayerPlan {
            spec: (&self.spec).into(),
            norm: Norm::Pre,
            initializer: normal(SPREAD),
            of_results: normal(SPREAD / parts.sqrt()),
        }
    }
}

fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}

#[cfg(test)]
mod tests {
    use zoo_attention::Mechanism;
    use zoo_spec::{Activation, PositionEncoding};

    use super::*;

    fn refused(config: GptConfig, message: &str) {
        let error = config.check().expect_err(message);
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let new = GptConfig::new;
        refused(new(0, 8, 2, 1), "vocabulary must be at least 1, got 0");
        refused(new(5, 8, 2, 0), "layers must be at least 1, got 0");
        refused(new(5, 0, 2, 1), "d_model must be at least 1, got 0");
        refused(new(5, 8, 0, 1), "heads must be at least 1, got 0");
        refused(
            new(5, 8, 3, 1),
            "attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given",
        );
        let fine = || new(5, 8, 2, 1);
        assert_eq!(fine().check(), Ok(()));
        refused(
            fine().with_kv_heads(Some(0)),
            "kv_heads must be at least 1, got 0",
        );
        refused(
            fine().with_kv_heads(Some(3)),
            "attention: heads = 2 must be a multiple of kv_heads = 3",
        );
        refused(
            fine().with_d_feed_forward(Some(0)),
            "d_feed_forward must be at least 1, got 0",
        );
        refused(
            fine().with_dropout(1.0),
            "dropout must be at least 0 and below 1, got 1.0",
        );
        refused(
            fine().with_attention_dropout(-0.5),
            "attention_dropout must be at least 0 and below 1, got -0.5",
        );
        refused(fine().with_epsilon(0.0), "epsilon must be above 0, got 0.0");
        refused(
            fine().with_positions(PositionEncoding::learned(0)),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            new(5, 6, 2, 1).with_positions(PositionEncoding::rotary(1e4)),
            "attention: rotary positions turn pairs of numbers: d_head = 3 must be even",
        );
        refused(
            fine()
                .with_attention(Mechanism::Linear.into())
                .with_positions(PositionEncoding::Alibi),
            "attention: mechanism linear does not support ALiBi: it computes no scores or weights",
        );
        refused(
            fine()
                .with_attention(Mechanism::Linear.into())
                .with_attention_dropout(0.1),
            "attention: mechanism linear does not support dropout: it computes no scores or weights",
        );
        refused(
            fine()
                .with_attention(Mechanism::MultiQuery.into())
                .with_kv_heads(Some(2)),
            "attention: kv_heads = 2 was given to mechanism multi-query, which has 1 of them",
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        let config = GptConfig::new(5, 8, 2, 1)
            .with_attention(Mechanism::Longformer.into())
            .with_positions(PositionEncoding::rotary(1e4))
            .with_activation(Activation::Swiglu);
        let text = serde_json::to_string(&config).expect("plain data");
        let read: GptConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
}
