//! A layer of attention to itself and a feed-forward network.

use burn::module::Module;
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::Tensor;
use zoo_attention::{DecodeCache, MultiHeadAttention, Pattern};
use zoo_kernels::{add_dropout, layer_norm};
use zoo_spec::Norm;

use super::self_attention::{Sight, advance};
use super::{FeedForward, learned};

/// A layer in which a sequence attends to itself: an encoder's, or of a decoder that
/// continues a text.
#[derive(Module, Debug)]
pub struct EncoderLayer {
    /// Of every place to the others.
    pub attention: MultiHeadAttention,
    /// Before it, or after.
    pub attention_norm: LayerNorm,
    /// Of each place for itself.
    pub feed_forward: FeedForward,
    /// Before it, or after.
    pub feed_forward_norm: LayerNorm,
    /// Numbers that are forgotten while training, of what is added.
    pub dropout: Dropout,
    #[module(skip)]
    pub(super) norm: Norm,
    #[module(skip)]
    pub(super) epsilon: f64,
}

impl EncoderLayer {
    /// Places are `[batch, seq, d_model]`.
    pub(crate) fn forward(&self, places: Tensor<3>, sight: Sight<'_>) -> Tensor<3> {
        self.through(places, |places| sight.attend(&self.attention, places))
    }

    pub(crate) fn seeing(&self, places: Tensor<3>, pattern: Pattern) -> Tensor<3> {
        self.through(places, |places| {
            let [query, key, value] = [places.clone(), places.clone(), places];
            self.attention.forward(query, key, value, pattern)
        })
    }

    /// The next places of sequences that are continued: `[batch, new, d_model]`.
    pub(crate) fn advance(&self, places: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        self.through(places, |places| advance(&self.attention, places, cache))
    }

    fn through(&self, places: Tensor<3>, attend: impl FnOnce(Tensor<3>) -> Tensor<3>) -> Tensor<3> {
        let around = Around {
            norm: self.norm,
            epsilon: self.epsilon,
            dropout: &self.dropout,
        };
        let places = around.part(&self.attention_norm, places, attend);
        around.part(&self.feed_forward_norm, places, |places| {
            self.feed_forward.forward(places)
        })
    }

    /// Floating-point operations of the matmuls of a forward pass over one sequence.
    pub(crate) fn flops(&self, seq: usize, is_causal: bool) -> f64 {
        self.attention.flops(seq, seq, is_causal) + seq as f64 * self.feed_forward.flops()
    }

    pub(crate) fn parameters(&self) -> usize {
        self.num_params() - self.attention.num_params() + learned(&self.attention)
    }
}

/// What is around each part of a layer.
#[derive(Clone, Copy)]
pub(super) struct Around<'a> {
    pub(super) norm: Norm,
    pub(super) epsilon: f64,
    pub(super) dropout: &'a Dropout,
}

impl Around<'_> {
    /// `x + part(norm(x))`, or `norm(x + part(x))`.
    pub(super) fn part(
        self,
        norm: &LayerNorm,
        places: Tensor<3>,
        part: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        match self.norm {
            Norm::Pre => {
                let added = part(layer_norm(norm, self.epsilon, places.clone()));
                add_dropout(self.dropout, places, added)
            }
            Norm::Post => {
                let added = part(places.clone());
                layer_norm(norm, self.epsilon, add_dropout(self.dropout, places, added))
            }
        }
    }
}
