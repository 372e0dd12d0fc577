//! Transformer decoder layer: self-attention, cross-attention and feed-forward network.

use burn::module::Module;
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::Tensor;
use zoo_attention::{
    AttentionError, AttentionInput, DecodeCache, MultiHeadAttention, Pattern, ProjectedMemory,
};
use zoo_spec::Norm;

use super::encoder::Residual;
use super::self_attention::{SelfAttentionOptions, advance};
use super::{FeedForward, num_trainable};

/// Decoder layer with cross-attention.
#[derive(Module, Debug)]
pub struct DecoderLayer {
    /// Causal self-attention.
    pub attention: MultiHeadAttention,
    /// Layer norm of the self-attention.
    pub attention_norm: LayerNorm,
    /// Cross-attention to the encoder output.
    pub cross_attention: MultiHeadAttention,
    /// Layer norm of the cross-attention.
    pub cross_attention_norm: LayerNorm,
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

#[derive(Debug, Clone)]
pub(crate) struct DecoderLayerState {
    cache: DecodeCache,
    memory: ProjectedMemory,
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
    /// # Shapes
    ///
    /// - hidden: `[batch, seq_q, d_model]`
    /// - encoded: `[batch, seq_k, d_model]`, whose padding `encoded_pattern` masks
    pub(crate) fn forward(
        &self,
        hidden: Tensor<3>,
        options: SelfAttentionOptions<'_>,
        encoded: &Tensor<3>,
        encoded_pattern: Pattern,
    ) -> Tensor<3> {
        self.forward_sublayers(
            hidden,
            |x| options.attend(&self.attention, x),
            |x| {
                let input = AttentionInput::cross_attn(x, encoded.clone()).pattern(encoded_pattern);
                options.record(&self.cross_attention, &input);
                self.cross_attention.forward(input).context
            },
        )
    }

    pub(crate) fn start(&self, encoded: &Tensor<3>) -> Result<DecoderLayerState, AttentionError> {
        Ok(DecoderLayerState {
            cache: self.attention.decode_cache(super::INITIAL_CAPACITY)?,
            memory: (self.cross_attention).project_memory(encoded.clone(), encoded.clone()),
        })
    }

    /// Decodes the next positions of every sequence, `[batch, new, d_model]`.
    pub(crate) fn advance(
        &self,
        hidden: Tensor<3>,
        state: &mut DecoderLayerState,
        encoded_pattern: Pattern,
    ) -> Tensor<3> {
        let DecoderLayerState { cache, memory } = state;
        let first = cache.len();
        self.forward_sublayers(
            hidden,
            |x| advance(&self.attention, x, cache),
            |x| {
                self.cross_attention
                    .cross_attend_from(first, x, memory, encoded_pattern)
            },
        )
    }

    fn forward_sublayers(
        &self,
        hidden: Tensor<3>,
        self_attention: impl FnOnce(Tensor<3>) -> Tensor<3>,
        cross_attention: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let residual = Residual {
            norm: self.norm,
            epsilon: self.epsilon,
            dropout: &self.dropout,
        };
        let hidden = residual.forward(&self.attention_norm, hidden, self_attention);
        let hidden = residual.forward(&self.cross_attention_norm, hidden, cross_attention);
        residual.forward(&self.feed_forward_norm, hidden, |x| {
            self.feed_forward.forward(x)
        })
    }

    /// Floating-point operations of the matmuls of a forward pass over one pair of sequences.
    pub(crate) fn flops(&self, seq_q: usize, seq_k: usize) -> f64 {
        self.attention.flops(seq_q, seq_q, true)
            + self.cross_attention.flops(seq_q, seq_k, false)
            + seq_q as f64 * self.feed_forward.flops()
    }

    pub(crate) fn parameters(&self) -> usize {
        let attentions = [&self.attention, &self.cross_attention];
        let all: usize = attentions.iter().map(|it| it.num_params()).sum();
        let trainable: usize = attentions.into_iter().map(num_trainable).sum();
        self.num_params() - all + trainable
    }
}
