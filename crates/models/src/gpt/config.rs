//! How a GPT is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use zoo_attention::MechanismConfig;

use super::Gpt;
use crate::ModelError;
use crate::blocks::{
    Activation, AddedPositions, LayerPlan, Norm, PositionsConfig, d_feed_forward, linear,
};

/// Configuration of a [`Gpt`]. The defaults are GPT-2's but for its sizes.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{GptConfig, PositionsConfig};
/// // 12 layers of 768 numbers, 12 heads over 4 of keys and values, each looking back a while.
/// let config = GptConfig::new(50_257, 768, 12, 12)
///     .with_kv_heads(Some(4))
///     .with_positions(PositionsConfig::Rotary { theta: 1e4 })
///     .with_mechanism(Mechanism::SlidingWindow.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Config, Debug)]
pub struct GptConfig {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// Numbers of each place.
    pub d_model: usize,
    /// Query heads.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// Key and value heads; `None` is as many as the mechanism says, else one for each
    /// query head.
    pub kv_heads: Option<usize>,
    /// Numbers between the matrices of a feed-forward network; `None` is `4 d_model`.
    pub d_feed_forward: Option<usize>,
    /// The mechanism and its sizes. Default: flash.
    #[config(default = "zoo_attention::Mechanism::Flash.into()")]
    pub mechanism: MechanismConfig,
    /// How it learns where tokens are. Default: 1,024 learned places.
    #[config(default = "PositionsConfig::Learned { longest: 1024 }")]
    pub positions: PositionsConfig,
    /// What feed-forward networks do between their matrices. Default: gelu by a tanh.
    #[config(default = "Activation::GeluTanh")]
    pub activation: Activation,
    /// Whether tokens are predicted by the vectors they are embedded with. Default: yes.
    #[config(default = true)]
    pub tied: bool,
    /// The share of numbers forgotten while training: of embedded tokens, of what each part of
    /// a layer adds and within its feed-forward network, where GPT-2 forgets none. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The share forgotten between the matrices of feed-forward networks; `None` is `dropout`.
    pub feed_forward_dropout: Option<f64>,
    /// The share of attention's weights forgotten while training. Default: none.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Whether matrices and norms have a bias; the head has none. Default: yes.
    #[config(default = true)]
    pub bias: bool,
    /// What norms add to a variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// How GPT-2 draws everything.
const SPREAD: f64 = 0.02;

impl GptConfig {
    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("layers", 1, self.layers)?;
        let plan = self.plan();
        plan.check()?;
        plan.check_self("mechanism", &self.mechanism)
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
        let plan = self.plan();
        let drawn = normal(SPREAD);
        let layer = |_| plan.encoder_layer(&self.mechanism, device);
        Ok(Gpt {
            embedding: EmbeddingConfig::new(self.vocabulary, self.d_model)
                .with_initializer(drawn.clone())
                .init(device),
            positions: AddedPositions::new(self.positions, self.d_model, &drawn, device),
            dropout: DropoutConfig::new(self.dropout).init(),
            layers: (0..self.layers).map(layer).collect(),
            norm: plan.layer_norm(device),
            head: (!self.tied)
                .then(|| linear([self.d_model, self.vocabulary], false, &drawn, device)),
            config: self.clone(),
        })
    }

    pub(super) fn plan(&self) -> LayerPlan {
        // Each layer adds twice to what went in: their sum is to stay as large.
        let parts = (2 * self.layers.max(1)) as f64;
        LayerPlan {
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            d_feed_forward: d_feed_forward(self.d_feed_forward, self.d_model),
            norm: Norm::Pre,
            activation: self.activation,
            positions: self.positions,
            dropout: self.dropout,
            feed_forward_dropout: self.feed_forward_dropout.unwrap_or(self.dropout),
            attention_dropout: self.attention_dropout,
            bias: self.bias,
            epsilon: self.epsilon,
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
            "d_model must be a multiple of heads = 3, got 8",
        );
        let fine = || new(5, 8, 2, 1);
        assert_eq!(fine().check(), Ok(()));
        refused(
            fine().with_kv_heads(Some(0)),
            "kv_heads must be at least 1, got 0",
        );
        refused(
            fine().with_kv_heads(Some(3)),
            "mechanism: heads = 2 must be a multiple of kv_heads = 3",
        );
        refused(
            fine().with_d_feed_forward(Some(0)),
            "d_feed_forward must be at least 1, got 0",
        );
        refused(
            fine().with_dropout(1.0),
            "dropout must be at least 0 and below 1, got 1",
        );
        refused(
            fine().with_attention_dropout(-0.5),
            "attention_dropout must be at least 0 and below 1, got -0.5",
        );
        refused(
            fine().with_epsilon(0.0),
            "epsilon must be a number above 0, got 0",
        );
        refused(
            fine().with_positions(PositionsConfig::Learned { longest: 0 }),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            new(5, 6, 2, 1).with_positions(PositionsConfig::Rotary { theta: 1e4 }),
            "mechanism: rotary positions turn pairs of numbers: d_head = 3 must be even",
        );
        refused(
            fine()
                .with_mechanism(Mechanism::Linear.into())
                .with_positions(PositionsConfig::Alibi),
            "mechanism: mechanism linear does not support ALiBi: it computes no scores or weights",
        );
        refused(
            fine()
                .with_mechanism(Mechanism::Linear.into())
                .with_attention_dropout(0.1),
            "mechanism: mechanism linear does not support dropout: it computes no scores or weights",
        );
        refused(
            fine()
                .with_mechanism(Mechanism::MultiQuery.into())
                .with_kv_heads(Some(2)),
            "mechanism: kv_heads = 2 was given to mechanism multi-query, which has 1 of them",
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        let config = GptConfig::new(5, 8, 2, 1)
            .with_mechanism(Mechanism::Longformer.into())
            .with_positions(PositionsConfig::Rotary { theta: 1e4 })
            .with_activation(Activation::Swiglu);
        let text = serde_json::to_string(&config).expect("plain data");
        let read: GptConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
}
