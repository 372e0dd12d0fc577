//! How a classifier is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_attention::MechanismConfig;

use super::Classifier;
use crate::blocks::{
    Activation, AddedPositions, LayerPlan, Norm, PositionsConfig, check_encoder_mechanism,
    d_feed_forward, linear,
};
use crate::{ContextAttentionConfig, ModelError};

/// Configuration of a [`Classifier`].
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{ClassifierConfig, Pooling};
/// // Four layers of 256 numbers and 4 heads, for documents of 5 classes.
/// let config = ClassifierConfig::new(10_000, 5, 256, 4, 4)
///     .with_mechanism(Mechanism::Longformer.into())
///     .with_pooling(Pooling::Attention);
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Config, Debug)]
pub struct ClassifierConfig {
    /// How many tokens there are.
    pub vocabulary: usize,
    /// How many classes there are.
    pub classes: usize,
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
    /// How a sequence becomes one vector. Default: the mean.
    #[config(default = "Pooling::Mean")]
    pub pooling: Pooling,
    /// Where layers normalise. Default: before each part.
    #[config(default = "Norm::Pre")]
    pub norm: Norm,
    /// Whether there is a norm after the last layer. Default: yes.
    #[config(default = true)]
    pub final_norm: bool,
    /// What feed-forward networks do between their matrices. Default: gelu.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// How it learns where tokens are. Default: by waves.
    #[config(default = "PositionsConfig::Sinusoidal")]
    pub positions: PositionsConfig,
    /// Whether embedded tokens are multiplied by `sqrt(d_model)`. Default: yes.
    #[config(default = true)]
    pub scale_embeddings: bool,
    /// The share of numbers forgotten while training: of embedded tokens, of what each part
    /// of a layer adds and within its feed-forward network. Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The share forgotten between the matrices of feed-forward networks; `None` is `dropout`.
    pub feed_forward_dropout: Option<f64>,
    /// The share of attention's weights forgotten while training. Default: none.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// Whether matrices and norms have a bias; the head always has one. Default: yes.
    #[config(default = true)]
    pub bias: bool,
    /// What norms add to a variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// How a sequence becomes one vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// A learned vector is put before the tokens, and what becomes of it is taken. With a
    /// mechanism that sees neighbours alone it learns of the others layer by layer, or not at
    /// all: `longformer` and `bigbird` have global places for it.
    Cls,
    /// The mean of all places.
    Mean,
    /// The mean by weights that are learned:
    /// [`ContextAttention`](crate::ContextAttention).
    Attention,
}

impl Pooling {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cls => "cls",
            Self::Mean => "mean",
            Self::Attention => "attention",
        }
    }
}

impl ClassifierConfig {
    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        for (field, got) in [
            ("vocabulary", self.vocabulary),
            ("classes", self.classes),
            ("layers", self.layers),
        ] {
            ModelError::at_least(field, 1, got)?;
        }
        let plan = self.plan();
        plan.check()?;
        check_encoder_mechanism("mechanism", &self.mechanism)?;
        plan.check_self("mechanism", &self.mechanism)
    }

    /// Makes the model.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> Classifier {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("classifier: {error}"))
    }

    /// Makes the model, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<Classifier, ModelError> {
        self.check()?;
        let plan = self.plan();
        let d_model = self.d_model;
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (d_model as f64).sqrt(),
        };
        let layer = |_| plan.encoder_layer(&self.mechanism, device);
        let is_asked_for = |pooling: Pooling| self.pooling == pooling;
        Ok(Classifier {
            embedding: EmbeddingConfig::new(self.vocabulary, d_model)
                .with_initializer(vectors.clone())
                .init(device),
            positions: AddedPositions::new(self.positions, d_model, &vectors, device),
            cls: is_asked_for(Pooling::Cls).then(|| vectors.init([1, d_model], device)),
            dropout: DropoutConfig::new(self.dropout).init(),
            layers: (0..self.layers).map(layer).collect(),
            norm: self.final_norm.then(|| plan.layer_norm(device)),
            pooling: is_asked_for(Pooling::Attention)
                .then(|| ContextAttentionConfig::new(d_model, d_model).init(device)),
            head: linear([d_model, self.classes], true, &plan.initializer, device),
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

    use super::*;

    fn refused(config: ClassifierConfig, message: &str) {
        let error = config.check().expect_err(message);
        assert_eq!(error.to_string(), message);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let new = ClassifierConfig::new;
        let fine = || new(5, 3, 8, 2, 1);
        assert_eq!(fine().check(), Ok(()));
        refused(new(0, 3, 8, 2, 1), "vocabulary must be at least 1, got 0");
        refused(new(5, 0, 8, 2, 1), "classes must be at least 1, got 0");
        refused(new(5, 3, 8, 2, 0), "layers must be at least 1, got 0");
        refused(
            new(5, 3, 8, 3, 1),
            "d_model must be a multiple of heads = 3, got 8",
        );
        refused(
            fine().with_dropout(1.5),
            "dropout must be at least 0 and below 1, got 1.5",
        );
        refused(
            fine().with_positions(PositionsConfig::Learned { longest: 0 }),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            fine().with_mechanism(Mechanism::Retention.into()),
            "mechanism = retention cannot be used for bidirectional attention: it is causal",
        );
        refused(
            fine()
                .with_mechanism(Mechanism::Lsh.into())
                .with_positions(PositionsConfig::Alibi),
            "mechanism: mechanism lsh does not support ALiBi: it sorts positions by their hashes",
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        let config = ClassifierConfig::new(5, 3, 8, 2, 1).with_pooling(Pooling::Cls);
        let text = serde_json::to_string(&config).expect("plain data");
        assert!(text.contains(r#""pooling":"cls""#), "{text}");
        let read: ClassifierConfig = serde_json::from_str(&text).expect("what was written");
        assert_eq!(serde_json::to_string(&read).expect("plain data"), text);
    }
}
