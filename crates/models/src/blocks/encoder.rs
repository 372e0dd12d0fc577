//! Transformer encoder layer: self-attention and feed-forward network.

use burn::module::Module;
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::Tensor;
use zoo_attention::{AttentionInput, DecodeCache, MultiHeadAttention, Pattern};
use zoo_kernels::{add_dropout, layer_norm};
use zoo_spec::Norm;

use super::self_attention::{SelfAttentionOptions, advance};
use super::{FeedForward, num_trainable};

/// Layer with self-attention only: of an encoder, or of a decoder-only model.
#[derive(Module, Debug)]
pub struct EncoderLayer {
    /// Self-attention.
    pub attention: MultiHeadAttention,
    /// Layer norm of the self-attention.
    pub attention_norm: LayerNorm,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
    /// Layer norm of the feed-forward network.
    pub feed_forward_norm: LayerNorm,
    /// Dropout of each sublayer's output.
    pub dropout: Dropout,
    #[module(skip)]
    pub(super) norm: Norm,
    #[module(skip)]
    pub(super) epsilon: f64,
}

impl EncoderLayer {
    /// `hidden` is `[batch, seq, d_model]`.
    pub(crate) fn forward(
        &self,
        hidden: Tensor<3>,
        options: SelfAttentionOptions<'_>,
    ) -> Tensor<3> {
        self.forward_sublayers(hidden, |x| options.attend(&self.attention, x))
    }

    pub(crate) fn forward_with_pattern(&self, hidden: Tensor<3>, pattern: Pattern) -> Tensor<3> {
        self.forward_sublayers(hidden, |x| {
            let input = AttentionInput::self_attn(x).pattern(pattern);
            self.attention.forward(input).context
        })
    }

    /// Decodes the next positions of every sequence, `[batch, new, d_model]`.
    pub(crate) fn advance(&self, hidden: Tensor<3>, cache: &mut DecodeCache) -> Tensor<3> {
        self.forward_sublayers(hidden, |x| advance(&self.attention, x, cache))
    }

    fn forward_sublayers(
        &self,
        hidden: Tensor<3>,
        self_attention: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let residual = Residual {
            norm: self.norm,
            epsilon: self.epsilon,
            dropout: &self.dropout,
        };
        let hidden = residual.forward(&self.attention_norm, hidden, self_attention);
        residual.forward(&self.feed_forward_norm, hidden, |x| {
            self.feed_forward.forward(x)
        })
    }

    /// Floating-point operations of the matmuls of a forward pass over one sequence.
    pub(crate) fn flops(&self, seq: usize, is_causal: bool) -> f64 {
        self.attention.flops(seq, seq, is_causal) + seq as f64 * self.feed_forward.flops()
    }

    pub(crate) fn parameters(&self) -> usize {
        self.num_params() - self.attention.num_params() + num_trainable(&self.attention)
    }
}

/// Residual connection with layer norm and dropout around a sublayer.
#[derive(Clone, Copy)]
pub(super) struct Residual<'a> {
    pub(super) norm: Norm,
    pub(super) epsilon: f64,
    pub(super) dropout: &'a Dropout,
}

impl Residual<'_> {
    /// `x + sublayer(norm(x))` (pre-norm), or `norm(x + sublayer(x))` (post-norm).
    pub(super) fn forward(
        self,
        norm: &LayerNorm,
        x: Tensor<3>,
        sublayer: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        match self.norm {
            Norm::Pre => {
                let output = sublayer(layer_norm(norm, self.epsilon, x.clone()));
                add_dropout(self.dropout, x, output)
            }
            Norm::Post => {
                let output = sublayer(x.clone());
                layer_norm(norm, self.epsilon, add_dropout(self.dropout, x, output))
            }
        }
    }
}
