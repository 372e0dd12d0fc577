//! Transformer layer: self-attention, cross-attention in some decoders, and feed-forward network.

use burn::module::Module;
use burn::nn::{Dropout, LayerNorm};
use burn::tensor::Tensor;
use zoo_attention::{AttentionInput, DecodeCache, MultiHeadAttention, Pattern, ProjectedMemory};
use zoo_kernels::add_dropout;
use zoo_spec::Norm;

use super::self_attention::{SelfAttentionOptions, advance};
use super::{FeedForward, Normalization};
use crate::ModelError;

/// Transformer layer. Decoder layers of an encoder-decoder model have cross-attention.
#[derive(Module, Debug)]
pub struct TransformerLayer {
    /// Self-attention.
    pub attention: MultiHeadAttention,
    /// Layer norm of the self-attention.
    pub attention_norm: LayerNorm,
    /// Cross-attention to the encoder output.
    pub cross_attention: Option<MultiHeadAttention>,
    /// Layer norm of the cross-attention.
    pub cross_attention_norm: Option<LayerNorm>,
    /// Feed-forward network.
    pub feed_forward: FeedForward,
    /// Layer norm of the feed-forward network.
    pub feed_forward_norm: LayerNorm,
    /// Dropout of each sublayer's output.
    pub dropout: Dropout,
    #[module(skip)]
    pub(super) norm: Norm,
    #[module(skip)]
    pub(super) normalization: Normalization,
}

/// Decoding state of a layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerState {
    pub(crate) cache: DecodeCache,
    /// Keys and values of the encoder output, if the layer has cross-attention.
    memory: Option<ProjectedMemory>,
}

impl LayerState {
    /// Initial states of layers. `field` is the config field of their mechanism.
    pub(crate) fn start(
        layers: &[TransformerLayer],
        field: &'static str,
        encoded: Option<&Tensor<3>>,
    ) -> Result<Vec<Self>, ModelError> {
        let start = |layer: &TransformerLayer| {
            let cache = layer.attention.decode_cache(INITIAL_CAPACITY);
            let cross_attention = layer.cross_attention.as_ref().zip(encoded);
            Ok(Self {
                cache: cache.map_err(|source| ModelError::Attention { field, source })?,
                memory: cross_attention.map(|(attention, encoded)| {
                    attention.project_memory(encoded.clone(), encoded.clone())
                }),
            })
        };
        layers.iter().map(start).collect()
    }

    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        Self {
            cache: self.cache.select(rows),
            memory: self.memory.as_ref().map(|memory| memory.select(rows)),
        }
    }
}

/// Initial capacity of decode caches in positions; they grow when full.
const INITIAL_CAPACITY: usize = 64;

const NO_ENCODER_OUTPUT: &str = "cross-attention needs an encoder output";

impl TransformerLayer {
    /// # Shapes
    ///
    /// - hidden: `[batch, seq_q, d_model]`
    /// - encoded: `[batch, seq_k, d_model]` for cross-attention, with a pattern that masks padding
    pub(crate) fn forward(
        &self,
        hidden: Tensor<3>,
        options: SelfAttentionOptions<'_>,
        encoded: Option<(&Tensor<3>, Pattern)>,
    ) -> Tensor<3> {
        self.forward_sublayers(
            hidden,
            |x| options.attend(&self.attention, x),
            |attention, x| {
                let (encoded, pattern) = encoded.expect(NO_ENCODER_OUTPUT);
                let input = AttentionInput::cross_attn(x, encoded.clone()).pattern(pattern);
                options.record(attention, &input);
                attention.forward(input).context
            },
        )
    }

    /// Decodes the next positions of every sequence, `[batch, new, d_model]`. `encoded_pattern`
    /// masks the padding of the encoder output.
    pub(crate) fn advance(
        &self,
        hidden: Tensor<3>,
        state: &mut LayerState,
        encoded_pattern: Pattern,
    ) -> Tensor<3> {
        let LayerState { cache, memory } = state;
        let first = cache.len();
        self.forward_sublayers(
            hidden,
            |x| advance(&self.attention, x, cache),
            |attention, x| {
                let memory = memory.as_ref().expect(NO_ENCODER_OUTPUT);
                attention.cross_attend_from(first, x, memory, encoded_pattern)
            },
        )
    }

    pub(crate) fn forward_sublayers(
        &self,
        hidden: Tensor<3>,
        self_attention: impl FnOnce(Tensor<3>) -> Tensor<3>,
        cross_attention: impl FnOnce(&MultiHeadAttention, Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let mut hidden = self.residual(&self.attention_norm, hidden, self_attention);
        if let (Some(attention), Some(norm)) = (&self.cross_attention, &self.cross_attention_norm) {
            hidden = self.residual(norm, hidden, |x| cross_attention(attention, x));
        }
        self.residual(&self.feed_forward_norm, hidden, |x| {
            self.feed_forward.forward(x)
        })
    }

    /// `x + sublayer(norm(x))` (pre-norm), or `norm(x + sublayer(x))` (post-norm), with dropout.
    fn residual(
        &self,
        norm: &LayerNorm,
        x: Tensor<3>,
        sublayer: impl FnOnce(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        match self.norm {
            Norm::Pre => {
                let output = sublayer(self.normalization.apply(norm, x.clone()));
                add_dropout(&self.dropout, x, output)
            }
            Norm::Post => {
                let output = sublayer(x.clone());
                let sum = add_dropout(&self.dropout, x, output);
                self.normalization.apply(norm, sum)
            }
        }
    }

    /// Floating-point operations of the matmuls of a forward pass over one sequence, with
    /// cross-attention to `seq_k` positions.
    pub(crate) fn flops(&self, seq_q: usize, is_causal: bool, seq_k: usize) -> f64 {
        let cross_attention = self.cross_attention.as_ref();
        self.attention.flops(seq_q, seq_q, is_causal)
            + cross_attention.map_or(0.0, |attention| attention.flops(seq_q, seq_k, false))
            + seq_q as f64 * self.feed_forward.flops()
    }

    /// Number of trainable parameters, which excludes random features.
    pub(crate) fn parameters(&self) -> usize {
        let attentions = [Some(&self.attention), self.cross_attention.as_ref()];
        let attentions = attentions.into_iter().flatten();
        let features = attentions.filter_map(|attention| attention.params.features.as_ref());
        self.num_params() - features.map(Module::num_params).sum::<usize>()
    }
}
