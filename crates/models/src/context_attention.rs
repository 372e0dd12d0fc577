//! Attention pooling with a learned context vector as the query.
//!
//! ```text
//! u_j = tanh(W h_j + b)      α = softmax(u · v)      pooled = Σ α_j h_j
//! ```
//!
//! Yang et al., [Hierarchical Attention Networks for Document
//! Classification](https://aclanthology.org/N16-1174), 2016. It is additive attention, whose
//! query is the bias.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use zoo_attention::mechanisms::additive::additive_with_weights;
use zoo_attention::{AttentionOptions, Pattern};
use zoo_kernels::{Activation, linear};

use crate::blocks::normal;

/// Attention pooling.
#[derive(Module, Debug)]
pub struct ContextAttention {
    /// `W` and `b`.
    pub projection: Linear,
    /// Context vector `v`, `[1, d_attention]`.
    pub context: Param<Tensor<2>>,
}

/// Output of a [`ContextAttention`].
#[derive(Debug, Clone)]
pub struct PoolingOutput {
    /// Weighted mean, `[batch, d_model]`.
    pub vector: Tensor<2>,
    /// Attention weights, `[batch, seq]`.
    pub weights: Tensor<2>,
}

impl ContextAttention {
    /// Initializes the module for hidden states `[batch, seq, d_model]`; `d_attention` is the
    /// dimension of the projection that is scored.
    pub fn new(d_model: usize, d_attention: usize, device: &Device) -> Self {
        let context = normal(1.0 / (d_attention as f64).sqrt());
        Self {
            projection: LinearConfig::new(d_model, d_attention).init(device),
            context: context.init([1, d_attention], device),
        }
    }

    /// Floating-point operations of the matmuls over `seq` positions: the projection, the scores
    /// and the weighted sum.
    pub fn flops(&self, seq: usize) -> f64 {
        let [d_model, d_attention] = self.projection.weight.lazy_shape().dims();
        2.0 * seq as f64 * (d_model * d_attention + d_attention + d_model) as f64
    }

    /// Pools the positions that the pattern does not mask. The vector of a fully masked row is
    /// zero.
    ///
    /// # Shapes
    ///
    /// - x: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If the pattern does not fit the shape of `x`.
    pub fn forward(&self, x: Tensor<3>, pattern: Pattern) -> PoolingOutput {
        let [batch, seq, d_model] = x.dims();
        let [_, d_attention] = self.context.dims();
        let key = linear(&self.projection, Activation::Identity, x.clone()); // [batch, seq, d_attention]
        let key = key.reshape([batch, 1, seq, d_attention]);
        // The projection has added the bias to the keys.
        let query = Tensor::zeros([batch, 1, 1, d_attention], (&key.device(), key.dtype()));
        let value = x.reshape([batch, 1, seq, d_model]);
        let options = AttentionOptions::new().with_pattern(pattern);
        let output = additive_with_weights(query, key, value, self.context.val(), &options);
        PoolingOutput {
            vector: output.context.clone().reshape([batch, d_model]),
            weights: output.into_weights().reshape([batch, seq]),
        }
    }
}
