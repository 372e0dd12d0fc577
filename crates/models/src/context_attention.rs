//! Attention of nobody in particular: one learned vector asks what matters in a sequence.
//!
//! ```text
//! u_j = tanh(W h_j + b)      α = softmax(u · v)      pooled = Σ α_j h_j
//! ```
//!
//! Yang et al., [Hierarchical Attention Networks for Document
//! Classification](https://aclanthology.org/N16-1174), 2016. It is additive attention, whose
//! query is the bias.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};
use zoo_attention::{AttentionOptions, Pattern, additive};

/// Configuration of a [`ContextAttention`].
#[derive(Config, Debug)]
pub struct ContextAttentionConfig {
    /// Numbers of each place.
    pub d_model: usize,
    /// Numbers that places are compared by.
    pub d_attention: usize,
}

/// A sequence as one vector, weighed by what matters in it.
#[derive(Module, Debug)]
pub struct ContextAttention {
    /// The `W` of every place; its bias is the query's.
    pub projection: Linear,
    /// The `v` that asks, `[1, d_attention]`.
    pub context: Param<Tensor<2>>,
}

/// A sequence as one vector, and how much of it is whose.
#[derive(Debug, Clone)]
pub struct Pooled {
    /// `[batch, d_model]`.
    pub vector: Tensor<2>,
    /// `[batch, seq]`.
    pub weights: Tensor<2>,
}

impl ContextAttentionConfig {
    /// Makes the module.
    pub fn init(&self, device: &Device) -> ContextAttention {
        let context = Initializer::Normal {
            mean: 0.0,
            std: 1.0 / (self.d_attention as f64).sqrt(),
        };
        ContextAttention {
            projection: LinearConfig::new(self.d_model, self.d_attention).init(device),
            context: context.init([1, self.d_attention], device),
        }
    }
}

impl ContextAttention {
    /// Floating-point operations of the matmuls over so many places: the projection, a product
    /// with the vector that asks, and a share in the result.
    pub fn flops(&self, places: usize) -> f64 {
        let [d_model, d_attention] = self.projection.weight.lazy_shape().dims();
        2.0 * places as f64 * (d_model * d_attention + d_attention + d_model) as f64
    }

    /// The places that the pattern shows, as one vector; zeros where it shows none.
    ///
    /// # Shapes
    ///
    /// - places: `[batch, seq, d_model]`
    ///
    /// # Panics
    ///
    /// If the pattern does not fit.
    pub fn forward(&self, places: Tensor<3>, pattern: Pattern) -> Pooled {
        let [batch, seq, d_model] = places.dims();
        let [_, d_attention] = self.context.dims();
        let key = self.projection.forward(places.clone()); // [batch, seq, d_attention]
        let key = key.reshape([batch, 1, seq, d_attention]);
        // The bias is in the keys, where the projection has put it.
        let query = Tensor::zeros([batch, 1, 1, d_attention], (&key.device(), key.dtype()));
        let value = places.reshape([batch, 1, seq, d_model]);
        let options = AttentionOptions::new().with_pattern(pattern);
        let attended = additive(query, key, value, self.context.val(), &options);
        Pooled {
            vector: attended.context.reshape([batch, d_model]),
            weights: attended.weights.reshape([batch, seq]),
        }
    }
}
