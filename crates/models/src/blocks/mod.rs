//! Building blocks of models: position embedding, feed-forward network, Transformer layer.
//!
//! Parameters of a layer, by their names in weight files:
//!
//! | name | |
//! |---|---|
//! | `attention.{query,key,value,output}.{weight,bias}` | self-attention |
//! | `attention_norm.{gamma,beta}` | its layer norm |
//! | `cross_attention.…`, `cross_attention_norm.…` | decoder layers with cross-attention |
//! | `feed_forward.{inner,gate,outer}.{weight,bias}` | `gate` only with `swiglu` |
//! | `feed_forward_norm.{gamma,beta}` | its layer norm |
//!
//! A weight is `[in_features, out_features]`, the transpose of PyTorch's.

mod feed_forward;
mod layer;
mod plan;
mod positions;
mod self_attention;

use burn::nn::{Embedding, LayerNorm, Linear};
use burn::tensor::{Int, Tensor};
use zoo_kernels::{Activation, layer_norm, linear, linear_transposed, rms_norm};
use zoo_spec::LayerSpec;

pub use self::feed_forward::FeedForward;
pub(crate) use self::layer::LayerState;
pub use self::layer::TransformerLayer;
pub(crate) use self::plan::{LayerPlan, Role, init_linear, normal};
pub use self::positions::PositionEmbedding;
pub(crate) use self::self_attention::{Recorder, SelfAttentionOptions};

/// Logits `[batch, seq, vocabulary]` from `[batch, seq, d_model]`, with a head or with the tied
/// embedding.
pub(crate) fn logits(hidden: Tensor<3>, head: Option<&Linear>, embedding: &Embedding) -> Tensor<3> {
    match head {
        Some(head) => linear(head, Activation::Identity, hidden),
        None => linear_transposed(embedding.weight.val(), hidden),
    }
}

/// Embeds tokens `[batch, seq]` from position `first` on: `[batch, seq, d_model]`.
pub(crate) fn embed(
    embedding: &Embedding,
    is_scaled: bool,
    positions: &PositionEmbedding,
    tokens: Tensor<2, Int>,
    first: usize,
) -> Tensor<3> {
    let [_, d_model] = embedding.weight.val().dims();
    let scale = match is_scaled {
        true => embedding_scale(d_model),
        false => 1.0,
    };
    positions.forward(zoo_kernels::embedding(embedding, tokens, scale), first)
}

/// Multiplies by `sqrt(d_model)` if `is_scaled`.
pub(crate) fn scale_embeddings(x: Tensor<3>, is_scaled: bool) -> Tensor<3> {
    let [_, _, d_model] = x.dims();
    match is_scaled {
        true => x.mul_scalar(embedding_scale(d_model)),
        false => x,
    }
}

fn embedding_scale(d_model: usize) -> f64 {
    (d_model as f64).sqrt()
}

/// How rows are normalised by a [`LayerNorm`], which is also the module of RMS norm: without a bias.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Normalization {
    pub(crate) is_rms: bool,
    pub(crate) epsilon: f64,
}

impl Normalization {
    /// That of layers with these keys.
    pub(crate) fn of_layers(spec: impl Into<LayerSpec>) -> Self {
        let spec = spec.into();
        Self {
            is_rms: spec.rms_norm,
            epsilon: spec.epsilon,
        }
    }

    pub(crate) fn apply(self, norm: &LayerNorm, x: Tensor<3>) -> Tensor<3> {
        match self.is_rms {
            true => rms_norm(norm.gamma.val(), self.epsilon, x),
            false => layer_norm(norm, self.epsilon, x),
        }
    }

    /// Applies the final norm, if there is one.
    pub(crate) fn apply_final(self, norm: Option<&LayerNorm>, hidden: Tensor<3>) -> Tensor<3> {
        match norm {
            Some(norm) => self.apply(norm, hidden),
            None => hidden,
        }
    }
}
