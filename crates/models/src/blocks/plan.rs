//! How the layers of a model are made, once for all models.

use burn::module::Module;
use burn::nn::{DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::Device;
use zoo_attention::{MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Positions};

use super::{Activation, DecoderLayer, EncoderLayer, FeedForward, Norm, PositionsConfig};
use crate::ModelError;

/// What all layers of a model have in common.
#[derive(Debug, Clone)]
pub(crate) struct LayerPlan {
    pub(crate) d_model: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: Option<usize>,
    pub(crate) d_feed_forward: usize,
    pub(crate) norm: Norm,
    pub(crate) activation: Activation,
    pub(crate) positions: PositionsConfig,
    pub(crate) dropout: f64,
    pub(crate) feed_forward_dropout: f64,
    pub(crate) attention_dropout: f64,
    pub(crate) bias: bool,
    pub(crate) epsilon: f64,
    /// How matrices are drawn.
    pub(crate) initializer: Initializer,
    /// How those are drawn whose result is added to what went in.
    pub(crate) of_results: Initializer,
}

impl LayerPlan {
    /// Whether layers can be made; what depends on the mechanism is asked for each.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        ModelError::at_least("d_model", 1, self.d_model)?;
        ModelError::at_least("heads", 1, self.heads)?;
        ModelError::at_least("d_feed_forward", 1, self.d_feed_forward)?;
        if !self.d_model.is_multiple_of(self.heads) {
            return Err(ModelError::Range {
                field: "d_model",
                allowed: format!("a multiple of heads = {}", self.heads),
                got: self.d_model.to_string(),
            });
        }
        if let Some(kv_heads) = self.kv_heads {
            ModelError::at_least("kv_heads", 1, kv_heads)?;
        }
        ModelError::share("dropout", self.dropout)?;
        ModelError::share("feed_forward_dropout", self.feed_forward_dropout)?;
        ModelError::share("attention_dropout", self.attention_dropout)?;
        if !(self.epsilon > 0.0 && self.epsilon.is_finite()) {
            return Err(ModelError::Range {
                field: "epsilon",
                allowed: "a number above 0".to_owned(),
                got: self.epsilon.to_string(),
            });
        }
        self.positions.check()
    }

    /// Whether self-attention can be made with the mechanism.
    pub(crate) fn check_self(
        &self,
        field: &'static str,
        mechanism: &MechanismConfig,
    ) -> Result<(), ModelError> {
        let config = self.attention(mechanism, self.positions.of_heads());
        let valid = config.validate();
        valid.map_err(|source| ModelError::Attention { field, source })
    }

    /// Whether attention to elsewhere can.
    pub(crate) fn check_cross(
        &self,
        field: &'static str,
        mechanism: &MechanismConfig,
    ) -> Result<(), ModelError> {
        let valid = self.attention(mechanism, Positions::None).validate();
        valid.map_err(|source| ModelError::Attention { field, source })
    }

    fn attention(
        &self,
        mechanism: &MechanismConfig,
        positions: Positions,
    ) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.d_model, self.heads)
            .with_kv_heads(self.kv_heads)
            .with_mechanism(*mechanism)
            .with_positions(positions)
            .with_dropout(self.attention_dropout)
            .with_query_bias(self.bias)
            .with_key_bias(self.bias)
            .with_value_bias(self.bias)
            .with_output_bias(self.bias)
            .with_initializer(self.initializer.clone())
    }

    fn init_attention(
        &self,
        mechanism: &MechanismConfig,
        positions: Positions,
        device: &Device,
    ) -> MultiHeadAttention {
        let mut made = self.attention(mechanism, positions).init(device);
        let sizes = made.output.weight.lazy_shape().dims();
        made.output = linear(sizes, self.bias, &self.of_results, device);
        made.query = without_bias_yet(made.query, device);
        made.key = made.key.map(|key| without_bias_yet(key, device));
        made.value = without_bias_yet(made.value, device);
        made
    }

    fn feed_forward(&self, device: &Device) -> FeedForward {
        let (outside, inside) = (self.d_model, self.d_feed_forward);
        let inward = || linear([outside, inside], self.bias, &self.initializer, device);
        FeedForward {
            inner: inward(),
            gate: (self.activation == Activation::Swiglu).then(inward),
            outer: linear([inside, outside], self.bias, &self.of_results, device),
            dropout: DropoutConfig::new(self.feed_forward_dropout).init(),
            activation: self.activation,
        }
    }

    pub(crate) fn layer_norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model)
            .with_epsilon(self.epsilon)
            .with_bias(self.bias)
            .init(device)
    }

    pub(crate) fn encoder_layer(
        &self,
        mechanism: &MechanismConfig,
        device: &Device,
    ) -> EncoderLayer {
        let positions = self.positions.of_heads();
        EncoderLayer {
            attention: self.init_attention(mechanism, positions, device),
            attention_norm: self.layer_norm(device),
            feed_forward: self.feed_forward(device),
            feed_forward_norm: self.layer_norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            norm: self.norm,
            epsilon: self.epsilon,
        }
    }

    pub(crate) fn decoder_layer(
        &self,
        mechanism: &MechanismConfig,
        cross: &MechanismConfig,
        device: &Device,
    ) -> DecoderLayer {
        let positions = self.positions.of_heads();
        DecoderLayer {
            attention: self.init_attention(mechanism, positions, device),
            attention_norm: self.layer_norm(device),
            cross_attention: self.init_attention(cross, Positions::None, device),
            cross_attention_norm: self.layer_norm(device),
            feed_forward: self.feed_forward(device),
            feed_forward_norm: self.layer_norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            norm: self.norm,
            epsilon: self.epsilon,
        }
    }

    /// The sizes of layers in a few words, for a summary.
    pub(crate) fn sizes(&self, layers: usize, mechanisms: &str) -> String {
        format!(
            "{layers} x {}, {} heads, {mechanisms}, {} {}, {}-norm",
            self.d_model,
            self.heads,
            self.activation.word(),
            self.d_feed_forward,
            self.norm.word()
        )
    }
}

/// A projection drawn by the initializer, with a bias of zeros.
pub(crate) fn linear(
    [from, to]: [usize; 2],
    bias: bool,
    initializer: &Initializer,
    device: &Device,
) -> Linear {
    let linear = LinearConfig::new(from, to)
        .with_bias(bias)
        .with_initializer(initializer.clone())
        .init(device);
    without_bias_yet(linear, device)
}

/// The projection with a bias of zeros, if it has one.
fn without_bias_yet(linear: Linear, device: &Device) -> Linear {
    let [_, to] = linear.weight.lazy_shape().dims();
    Linear {
        bias: linear.bias.map(|_| Initializer::Zeros.init([to], device)),
        ..linear
    }
}

/// How many numbers an attention has learned. Random features are none of them.
pub(crate) fn learned(attention: &MultiHeadAttention) -> usize {
    let drawn = attention.params.features.as_ref();
    attention.num_params() - drawn.map_or(0, Module::num_params)
}
