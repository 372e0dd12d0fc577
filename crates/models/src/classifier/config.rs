//! How a classifier is made, and what cannot be.

use burn::config::Config;
use burn::nn::{DropoutConfig, EmbeddingConfig, Initializer};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use zoo_attention::MechanismConfig;
use zoo_spec::keys::check_keys;
use zoo_spec::{ClassifierSpec, Norm, Pooling};

use super::Classifier;
use crate::blocks::{AddedPositions, LayerPlan, check_encoder_mechanism, linear};
use crate::{ContextAttentionConfig, ModelError};

/// Configuration of a [`Classifier`].
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{ClassifierConfig, Pooling};
/// // Four layers of width 256 and 4 heads, for documents of 5 classes.
/// let config = ClassifierConfig::new(10_000, 5, 256, 4, 4)
///     .with_attention(Mechanism::Longformer.into())
///     .with_pooling(Pooling::Attention);
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassifierConfig {
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Classes.
    pub classes: usize,
    /// Sizes and choices, as in a config file.
    #[serde(flatten)]
    pub spec: ClassifierSpec,
}

impl Config for ClassifierConfig {}

zoo_spec::classifier_keys!(setters ClassifierConfig);

impl ClassifierConfig {
    /// A classifier for a vocabulary of this size.
    pub fn new(
        vocabulary: usize,
        classes: usize,
        d_model: usize,
        heads: usize,
        layers: usize,
    ) -> Self {
        let spec = ClassifierSpec {
            d_model,
            heads,
            layers,
            ..ClassifierSpec::default()
        };
        Self {
            vocabulary,
            classes,
            spec,
        }
    }

    /// Whether the model can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("vocabulary", 1, self.vocabulary)?;
        ModelError::at_least("classes", 1, self.classes)?;
        check_keys(&self.spec, ClassifierSpec::KEYS)?;
        check_encoder_mechanism("attention", &self.spec.attention)?;
        self.plan().check_self("attention", &self.spec.attention)
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
        let (plan, spec) = (self.plan(), &self.spec);
        let d_model = spec.d_model;
        let vectors = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (d_model as f64).sqrt(),
        };
        let layer = |_| plan.encoder_layer(&spec.attention, device);
        let is_asked_for = |pooling: Pooling| spec.pooling == pooling;
        Ok(Classifier {
            embedding: EmbeddingConfig::new(self.vocabulary, d_model)
                .with_initializer(vectors.clone())
                .init(device),
            positions: AddedPositions::new(spec.positions, d_model, &vectors, device),
            cls: is_asked_for(Pooling::Cls).then(|| vectors.init([1, d_model], device)),
            dropout: DropoutConfig::new(spec.dropout).init(),
            layers: (0..spec.layers).map(layer).collect(),
            norm: spec.final_norm.then(|| plan.layer_norm(device)),
            pooling: is_asked_for(Pooling::Attention)
                .then(|| ContextAttentionConfig::new(d_model, d_model).init(device)),
            head: linear([d_model, self.classes], true, &plan.initializer, device),
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
    use zoo_spec::PositionEncoding;

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
            "attention: d_model = 8 must be a multiple of heads = 3, or d_head must be given",
        );
        refused(
            fine().with_dropout(1.5),
            "dropout must be at least 0 and below 1, got 1.5",
        );
        refused(
            fine().with_positions(PositionEncoding::learned(0)),
            "positions.longest must be at least 1, got 0",
        );
        refused(
            fine().with_attention(Mechanism::Retention.into()),
            "attention = retention cannot be used for bidirectional attention: it is causal",
        );
        refused(
            fine()
                .with_attention(Mechanism::Lsh.into())
                .with_positions(PositionEncoding::Alibi),
            "attention: mechanism lsh does not support ALiBi: it sorts positions by their hashes",
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
