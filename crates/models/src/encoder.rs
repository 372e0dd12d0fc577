//! Layers in which places look at each other, from vectors to vectors: what burn-nn's
//! `TransformerEncoder` is, with any mechanism.
//!
//! [`import::burn_encoder`](crate::weights::import::burn_encoder) takes the weights of one.

use burn::config::Config;
use burn::module::Module;
use burn::nn::LayerNorm;
use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::Mechanism;
use zoo_attention::{MechanismConfig, Pattern};
use zoo_spec::keys::check_keys;
use zoo_spec::{Activation, ClassifierSpec, LayerSpec, Norm, PositionEncoding};

use crate::ModelError;
use crate::blocks::{EncoderLayer, LayerPlan, Role, normed};

/// Configuration of a [`TransformerEncoder`]. The defaults are burn-nn's, but for attention's
/// weights, of which it forgets as many as of everything else.
///
/// ```
/// # use zoo_attention::Mechanism;
/// # use zoo_models::{Norm, TransformerEncoderConfig};
/// let config = TransformerEncoderConfig::new(256, 1024, 8, 4)
///     .with_norm(Norm::Pre)
///     .with_mechanism(Mechanism::Longformer.into());
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Config, Debug)]
pub struct TransformerEncoderConfig {
    /// Numbers of each place.
    pub d_model: usize,
    /// Numbers between the matrices of a feed-forward network.
    pub d_feed_forward: usize,
    /// Query heads.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
    /// Key and value heads; `None` is as many as the mechanism says, else one for each query
    /// head.
    pub kv_heads: Option<usize>,
    /// How places attend to each other. Default: flash.
    #[config(default = "MechanismConfig::from(Mechanism::Flash)")]
    pub mechanism: MechanismConfig,
    /// Where layers normalise. Default: after each part.
    #[config(default = "Norm::Post")]
    pub norm: Norm,
    /// Whether there is a norm after the last layer. Default: no.
    #[config(default = false)]
    pub final_norm: bool,
    /// What feed-forward networks do between their matrices. Default: gelu.
    #[config(default = "Activation::Gelu")]
    pub activation: Activation,
    /// How heads learn about places: not at all, by turning them or by the distance. Vectors
    /// are added to places by whoever makes them. Default: not at all.
    #[config(default = "PositionEncoding::None")]
    pub positions: PositionEncoding,
    /// The share of numbers forgotten while training, of what each part of a layer adds.
    /// Default: 0.1.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// The share forgotten between the matrices of feed-forward networks; `None` is `dropout`.
    pub feed_forward_dropout: Option<f64>,
    /// The share of attention's weights forgotten while training. Default: none.
    #[config(default = 0.0)]
    pub attention_dropout: f64,
    /// What norms add to a variance. Default: 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// Layers in which places look at each other. Made by a [`TransformerEncoderConfig`].
#[derive(Module, Debug)]
pub struct TransformerEncoder {
    /// The layers, in the order they are gone through.
    pub layers: Vec<EncoderLayer>,
    /// After the last, if there is one.
    pub norm: Option<LayerNorm>,
    #[module(skip)]
    epsilon: f64,
}

impl TransformerEncoderConfig {
    /// Whether it can be made, without a device to make it on.
    ///
    /// # Errors
    ///
    /// [`ModelError`] naming the field, what it may be and what it is.
    pub fn check(&self) -> Result<(), ModelError> {
        // Its fields are named as the keys of a classifier.
        check_keys(self, ClassifierSpec::KEYS)?;
        let is_of_heads = matches!(
            self.positions,
            PositionEncoding::None | PositionEncoding::Rotary(_) | PositionEncoding::Alibi
        );
        let allowed = "none, rotary or alibi where places are vectors already";
        let got = format!("{:?}", self.positions);
        ModelError::require(is_of_heads, "positions", allowed, got)?;
        self.plan().check("mechanism", &self.mechanism, Role::Any)
    }

    /// Makes it.
    ///
    /// # Panics
    ///
    /// If that cannot be: see [`try_init`](Self::try_init).
    pub fn init(&self, device: &Device) -> TransformerEncoder {
        self.try_init(device)
            .unwrap_or_else(|error| panic!("TransformerEncoder: {error}"))
    }

    /// Makes it, for sizes that come from a file.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub fn try_init(&self, device: &Device) -> Result<TransformerEncoder, ModelError> {
        self.check()?;
        let plan = self.plan();
        let layer = |_| plan.encoder_layer(&self.mechanism, device);
        Ok(TransformerEncoder {
            layers: (0..self.layers).map(layer).collect(),
            norm: self.final_norm.then(|| plan.layer_norm(device)),
            epsilon: self.epsilon,
        })
    }

    fn plan(&self) -> LayerPlan {
        let spec = LayerSpec {
            d_model: self.d_model,
            heads: self.heads,
            kv_heads: self.kv_heads,
            d_head: None,
            d_feed_forward: self.d_feed_forward,
            activation: self.activation,
            positions: self.positions,
            qk_norm: false,
            temperature: 1.0,
            softcap: None,
            entropy_penalty: 0.0,
            dropout: self.dropout,
            feed_forward_dropout: self.feed_forward_dropout.unwrap_or(self.dropout),
            attention_dropout: self.attention_dropout,
            bias: true,
            epsilon: self.epsilon,
        };
        LayerPlan::new(spec, self.norm)
    }
}

impl TransformerEncoder {
    /// What places are after they have looked at each other, as a pattern lets them.
    ///
    /// # Shapes
    ///
    /// - places: `[batch, seq, d_model]`
    /// - result: the same
    ///
    /// # Panics
    ///
    /// If the pattern does not fit the places, or the mechanism does not take it.
    pub fn forward(&self, places: Tensor<3>, pattern: Pattern) -> Tensor<3> {
        let layers = self.layers.iter();
        let places = layers.fold(places, |places, layer| {
            layer.seeing(places, pattern.clone())
        });
        normed(self.norm.as_ref(), self.epsilon, places)
    }
}
