//! A layer of attention to itself, to elsewhere, and a feed-forward network.

use burn::module::Module;
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::Tensor;
use zoo_attention::{CannotDecode, DecodeCache, Memory, MultiHeadAttention, Pattern};
use zoo_spec::Norm;

use super::encoder::Around;
use super::self_attention::{Sight, advance};
use super::{FeedForward, learned};

/// A layer in which a sequence attends to itself and to another.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Of every place to those before it.
    pub attention: MultiHeadAttention,
    /// Before it, or after.
    pub attention_norm: LayerNorm,
    /// Of every place to the other sequence.
    pub cross_attention: MultiHeadAttention,
    /// Before it, or after.
    pub cross_attention_norm: LayerNorm,
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

#[derive(Debug, Clone)]
pub(crate) struct DecoderLayerState {
    cache: DecodeCache,
    memory: Memory,
}

impl DecoderLayerState {
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        Self {
            cache: self.cache.select(rows),
            memory: self.memory.select(rows),
        }
    }
}

impl DecoderLayer {
    /// Places are `[batch, seq, d_model]`, the other `[batch, seq_k, d_model]`, of which the pattern
    /// shows what is no padding.
    pub(crate) fn forward(
        &self,
        places: Tensor<3>,
        sight: Sight<'_>,
        other: &Tensor<3>,
        seen: Pattern,
    ) -> Tensor<3> {
        self.through(
            places,
            |places| sight.attend(&self.attention, places),
            |places| {
                sight.note(&self.cross_attention, &places, other, &seen);
                let other = || other.clone();
                self.cross_attention.forward(places, other(), other(), seen)
            },
        )
    }

    pub(crate) fn start(&self, other: &Tensor<3>) -> Result<DecoderLayerState, CannotDecode> {
        Ok(DecoderLayerState {
            cache: self.attention.decode_cache(super::ROOM)?,
            memory: self.cross_attention.remember(other.clone(), other.clone()),
        })
    }

    /// The next places of every sequence: `[batch, new, d_model]`.
    pub(crate) fn advance(
        &self,
        places: Tensor<3>,
        state: &mut DecoderLayerState,
        seen: Pattern,
    ) -> Tensor<3> {
        let DecoderLayerState { cache, memory } = state;
        let first = cache.len();
        self.through(
            places,
            |places| advance(&self.attention, places, cache),
            |places| {
                self.cross_attention
                    .recall_from(first, places, memory, seen)
            },
        )
    }

    fn through(
        &self,
        places: Tensor<3>,
        attend: impl FnOnce(Tensor<3>) -> Tensor<3>,
        look: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let around = Around {
            norm: self.norm,
            epsilon: self.epsilon,
            dropout: &self.dropout,
        };
        let places = around.part(&self.attention_norm, places, attend);
        let places = around.part(&self.cross_attention_norm, places, look);
        around.part(&self.feed_forward_norm, places, |places| {
            self.feed_forward.forward(places)
        })
    }

    /// Floating-point operations of the matmuls of a forward pass over one sequence that
    /// looks at another.
    pub(crate) fn flops(&self, seq: usize, other: usize) -> f64 {
        self.attention.flops(seq, seq, true)
            + self.cross_attention.flops(seq, other, false)
            + seq as f64 * self.feed_forward.flops()
    }

    pub(crate) fn parameters(&self) -> usize {
        let attentions = [&self.attention, &self.cross_attention];
        let all: usize = attentions.iter().map(|one| one.num_params()).sum();
        let of_them: usize = attentions.into_iter().map(learned).sum();
        self.num_params() - all + of_them
    }
}
