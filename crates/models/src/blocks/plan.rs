//! How the layers of a model are made, once for all models.

use burn::module::Module;
use burn::nn::{DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::Device;
use zoo_attention::{
    MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Positions as HeadPositions,
};
use zoo_spec::{Activation, LayerSpec, Norm, PositionEncoding};

use super::{DecoderLayer, EncoderLayer, FeedForward};
use crate::ModelError;

#[derive(Debug, Clone)]
pub(crate) struct LayerPlan {
    pub(crate) spec: LayerSpec,
    pub(crate) norm: Norm,
    /// How matrices are drawn.
    pub(crate) initializer: Initializer,
    /// How those are drawn whose result is added to what went in.
    pub(crate) of_results: Initializer,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// Self-attention, causal or by a pattern that is not known yet.
    Any,
    Bidirectional,
    Cross,
}

impl LayerPlan {
    /// Layers whose matrices are all drawn alike.
    pub(crate) fn new(spec: LayerSpec, norm: Norm) -> Self {
        let initializer = Initializer::XavierUniform { gain: 1.0 };
        Self {
            spec,
            norm,
            of_results: initializer.clone(),
            initializer,
        }
    }

    /// The positions of self-attention, where heads are concerned with them.
    fn positions_of_heads(&self) -> HeadPositions {
        match self.spec.positions {
            PositionEncoding::Rotary(rotary) => HeadPositions::Rotary {
                theta: rotary.theta,
            },
            PositionEncoding::Alibi => HeadPositions::Alibi,
            PositionEncoding::None
            | PositionEncoding::Sinusoidal
            | PositionEncoding::Learned(_) => HeadPositions::None,
        }
    }

    /// Whether attention can be made with the mechanism, for that role.
    pub(crate) fn check(
        &self,
        field: &'static str,
        mechanism: &MechanismConfig,
        role: Role,
    ) -> Result<(), ModelError> {
        let capabilities = mechanism.capabilities();
        let own = self.positions_of_heads();
        let (what, support, positions) = match role {
            Role::Any => ("attention", Ok(()), own),
            Role::Bidirectional => ("bidirectional attention", capabilities.bidirectional, own),
            Role::Cross => {
                let support = capabilities.cross_attention;
                ("cross-attention", support, HeadPositions::None)
            }
        };
        support.map_err(|reason| ModelError::Mechanism {
            field,
            mechanism: mechanism.mechanism(),
            what,
            reason,
        })?;
        let valid = self.attention(mechanism, positions).validate();
        valid.map_err(|source| ModelError::Attention { field, source })
    }

    fn attention(
        &self,
        mechanism: &MechanismConfig,
        positions: HeadPositions,
    ) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.spec.d_model, self.spec.heads)
            .with_kv_heads(self.spec.kv_heads)
            .with_d_head(self.spec.d_head)
            .with_qk_norm(self.spec.qk_norm)
            .with_temperature(self.spec.temperature)
            .with_softcap(self.spec.softcap)
            .with_mechanism(*mechanism)
            .with_positions(positions)
            .with_dropout(self.spec.attention_dropout)
            .with_query_bias(self.spec.bias)
            .with_key_bias(self.spec.bias)
            .with_value_bias(self.spec.bias)
            .with_output_bias(self.spec.bias)
            .with_initializer(self.initializer.clone())
    }

    fn init_attention(
        &self,
        mechanism: &MechanismConfig,
        positions: HeadPositions,
        device: &Device,
    ) -> MultiHeadAttention {
        let mut made = self.attention(mechanism, positions).init(device);
        let sizes = made.output.weight.lazy_shape().dims();
        made.output = linear(sizes, self.spec.bias, &self.of_results, device);
        made.query = without_bias_yet(made.query, device);
        made.key = made.key.map(|key| without_bias_yet(key, device));
        made.value = without_bias_yet(made.value, device);
        made
    }

    fn feed_forward(&self, device: &Device) -> FeedForward {
        let (outside, inside) = (self.spec.d_model, self.spec.d_feed_forward);
        let inward = || linear([outside, inside], self.spec.bias, &self.initializer, device);
        FeedForward {
            inner: inward(),
            gate: (self.spec.activation == Activation::Swiglu).then(inward),
            outer: linear([inside, outside], self.spec.bias, &self.of_results, device),
            dropout: DropoutConfig::new(self.spec.feed_forward_dropout).init(),
            activation: self.spec.activation,
        }
    }

    pub(crate) fn layer_norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.spec.d_model)
            .with_epsilon(self.spec.epsilon)
            .with_bias(self.spec.bias)
            .init(device)
    }

    pub(crate) fn encoder_layer(
        &self,
        mechanism: &MechanismConfig,
        device: &Device,
    ) -> EncoderLayer {
        let positions = self.positions_of_heads();
        EncoderLayer {
            attention: self.init_attention(mechanism, positions, device),
            attention_norm: self.layer_norm(device),
            feed_forward: self.feed_forward(device),
            feed_forward_norm: self.layer_norm(device),
            dropout: DropoutConfig::new(self.spec.dropout).init(),
            norm: self.norm,
            epsilon: self.spec.epsilon,
        }
    }

    pub(crate) fn decoder_layer(
        &self,
        mechanism: &MechanismConfig,
        cross: &MechanismConfig,
        device: &Device,
    ) -> DecoderLayer {
        let positions = self.positions_of_heads();
        DecoderLayer {
            attention: self.init_attention(mechanism, positions, device),
            attention_norm: self.layer_norm(device),
            cross_attention: self.init_attention(cross, HeadPositions::None, device),
            cross_attention_norm: self.layer_norm(device),
            feed_forward: self.feed_forward(device),
            feed_forward_norm: self.layer_norm(device),
            dropout: DropoutConfig::new(self.spec.dropout).init(),
            norm: self.norm,
            epsilon: self.spec.epsilon,
        }
    }

    /// The sizes of layers in a few words, for a summary.
    pub(crate) fn sizes(&self, layers: usize, mechanisms: &str) -> String {
        format!(
            "{layers} x {}, {} heads, {mechanisms}, {} {}, {}-norm",
            self.spec.d_model,
            self.spec.heads,
            self.spec.activation.word(),
            self.spec.d_feed_forward,
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
