//! Initialization of layers, shared by all models.

use burn::nn::{DropoutConfig, Initializer, LayerNorm, LayerNormConfig, Linear, LinearConfig};
use burn::tensor::Device;
use zoo_attention::{
    MechanismConfig, MultiHeadAttention, MultiHeadAttentionConfig, Positions as HeadPositions,
};
use zoo_spec::{Activation, LayerMechanisms, LayerSpec, Norm, PositionEncoding};

use super::{FeedForward, Normalization, TransformerLayer};
use crate::ModelError;

#[derive(Debug, Clone)]
pub(crate) struct LayerPlan {
    pub(crate) spec: LayerSpec,
    pub(crate) norm: Norm,
    pub(crate) initializer: Initializer,
    /// Initializer of projections into the residual stream.
    pub(crate) residual_initializer: Initializer,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Role {
    /// Self-attention whose pattern is not known yet.
    Any,
    Causal,
    Bidirectional,
    Cross,
}

impl LayerPlan {
    /// Layers with Xavier-uniform weights.
    pub(crate) fn new(spec: LayerSpec, norm: Norm) -> Self {
        let initializer = Initializer::XavierUniform { gain: 1.0 };
        Self {
            spec,
            norm,
            residual_initializer: initializer.clone(),
            initializer,
        }
    }

    /// Position encoding that is applied inside self-attention.
    fn head_positions(&self) -> HeadPositions {
        match self.spec.positions {
            PositionEncoding::Rotary(rotary) => HeadPositions::Rotary(rotary),
            PositionEncoding::Alibi => HeadPositions::Alibi,
            PositionEncoding::None
            | PositionEncoding::Sinusoidal
            | PositionEncoding::Learned(_) => HeadPositions::None,
        }
    }

    /// Checks that the mechanism supports the role and the sizes.
    pub(crate) fn check(
        &self,
        field: &'static str,
        mechanism: &MechanismConfig,
        role: Role,
    ) -> Result<(), ModelError> {
        let capabilities = mechanism.capabilities();
        let (usage, support) = match role {
            Role::Any => ("attention", Ok(())),
            Role::Causal => ("causal attention", capabilities.causal),
            Role::Bidirectional => ("bidirectional attention", capabilities.bidirectional),
            Role::Cross => ("cross-attention", capabilities.cross_attention),
        };
        let positions = match role {
            Role::Any | Role::Causal | Role::Bidirectional => self.head_positions(),
            Role::Cross => HeadPositions::None,
        };
        support.map_err(|reason| ModelError::Mechanism {
            field,
            mechanism: mechanism.mechanism(),
            usage,
            reason,
        })?;
        let valid = self.attention(mechanism, positions).validate();
        valid.map_err(|source| ModelError::Attention { field, source })
    }

    /// [`check`](Self::check) for the mechanisms of a stack of layers.
    pub(crate) fn check_all(
        &self,
        field: &'static str,
        mechanisms: &LayerMechanisms,
        role: Role,
    ) -> Result<(), ModelError> {
        let mut list = mechanisms.list().iter();
        list.try_for_each(|mechanism| self.check(field, mechanism, role))
    }

    fn attention(
        &self,
        mechanism: &MechanismConfig,
        positions: HeadPositions,
    ) -> MultiHeadAttentionConfig {
        MultiHeadAttentionConfig::new(self.spec.d_model, self.spec.n_heads)
            .with_n_heads_kv(self.spec.n_heads_kv)
            .with_d_head(self.spec.d_head)
            .with_qk_norm(self.spec.qk_norm)
            .with_output_gate(self.spec.output_gate)
            .with_temperature(self.spec.temperature)
            .with_softcap(self.spec.softcap)
            .with_mechanism(*mechanism)
            .with_positions(positions)
            .with_dropout(self.spec.attention_dropout)
            .with_norm_epsilon(self.spec.epsilon)
            .with_query_bias(self.spec.qkv_bias)
            .with_key_bias(self.spec.qkv_bias)
            .with_value_bias(self.spec.qkv_bias)
            .with_output_bias(self.spec.bias)
            .with_initializer(self.initializer.clone())
    }

    fn init_attention(
        &self,
        mechanism: &MechanismConfig,
        positions: HeadPositions,
        device: &Device,
    ) -> MultiHeadAttention {
        let mut attention = self.attention(mechanism, positions).init(device);
        let sizes = attention.output.weight.lazy_shape().dims();
        attention.output = init_linear(sizes, self.spec.bias, &self.residual_initializer, device);
        attention.query = with_zero_bias(attention.query, device);
        attention.key = attention.key.map(|key| with_zero_bias(key, device));
        attention.value = with_zero_bias(attention.value, device);
        attention.gate = attention.gate.map(|gate| with_zero_bias(gate, device));
        attention
    }

    fn feed_forward(&self, device: &Device) -> FeedForward {
        let spec = &self.spec;
        let inner_sizes = [spec.d_model, spec.d_feed_forward];
        let outer_sizes = [spec.d_feed_forward, spec.d_model];
        let inner = || init_linear(inner_sizes, spec.bias, &self.initializer, device);
        FeedForward {
            inner: inner(),
            gate: (spec.activation == Activation::Swiglu).then(inner),
            outer: init_linear(outer_sizes, spec.bias, &self.residual_initializer, device),
            dropout: DropoutConfig::new(spec.feed_forward_dropout).init(),
            activation: spec.activation,
        }
    }

    pub(crate) fn layer_norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.spec.d_model)
            .with_epsilon(self.spec.epsilon)
            .with_bias(self.spec.bias && !self.spec.rms_norm)
            .init(device)
    }

    /// A layer, with cross-attention if `cross` is given.
    pub(crate) fn layer(
        &self,
        mechanism: &MechanismConfig,
        cross: Option<&MechanismConfig>,
        device: &Device,
    ) -> TransformerLayer {
        let cross_attention = |cross| self.init_attention(cross, HeadPositions::None, device);
        TransformerLayer {
            attention: self.init_attention(mechanism, self.head_positions(), device),
            attention_norm: self.layer_norm(device),
            cross_attention: cross.map(cross_attention),
            cross_attention_norm: cross.map(|_| self.layer_norm(device)),
            feed_forward: self.feed_forward(device),
            feed_forward_norm: self.layer_norm(device),
            dropout: DropoutConfig::new(self.spec.dropout).init(),
            norm: self.norm,
            normalization: Normalization::of_layers(self.spec),
        }
    }

    /// Sizes of the layers, for a summary.
    pub(crate) fn sizes(&self, layers: usize, mechanisms: &str) -> String {
        format!(
            "{layers} x {}, {} heads, {mechanisms}, {} {}, {}-norm",
            self.spec.d_model,
            self.spec.n_heads,
            self.spec.activation.name(),
            self.spec.d_feed_forward,
            self.norm.name()
        )
    }
}

/// Normal initializer with mean 0.
pub(crate) fn normal(std: f64) -> Initializer {
    Initializer::Normal { mean: 0.0, std }
}

/// Linear layer whose bias, if any, is zero.
pub(crate) fn init_linear(
    [from, to]: [usize; 2],
    bias: bool,
    initializer: &Initializer,
    device: &Device,
) -> Linear {
    let linear = LinearConfig::new(from, to)
        .with_bias(bias)
        .with_initializer(initializer.clone())
        .init(device);
    with_zero_bias(linear, device)
}

fn with_zero_bias(linear: Linear, device: &Device) -> Linear {
    let [_, to] = linear.weight.lazy_shape().dims();
    Linear {
        bias: linear.bias.map(|_| Initializer::Zeros.init([to], device)),
        ..linear
    }
}
