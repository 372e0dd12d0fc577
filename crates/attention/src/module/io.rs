//! Input and output of [`MultiHeadAttention`](super::MultiHeadAttention).

use burn::tensor::Tensor;

use crate::Pattern;

/// Query, key and value of a call, and the pattern that restricts which keys a query attends to.
///
/// ```
/// # use burn::tensor::Tensor;
/// # use zoo_attention::{AttentionInput, Pattern};
/// # fn inputs(x: Tensor<3>, context: Tensor<3>, lengths: Vec<usize>) -> [AttentionInput; 2] {
/// [
///     AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal),
///     AttentionInput::cross_attn(x, context).pattern(Pattern::key_lengths(lengths)),
/// ]
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct AttentionInput {
    /// `[batch, seq_q, d_model]`
    pub query: Tensor<3>,
    /// `[batch, seq_k, d_context]`
    pub key: Tensor<3>,
    /// `[batch, seq_k, d_context]`
    pub value: Tensor<3>,
    /// Which keys each query may attend to.
    pub pattern: Pattern,
}

impl AttentionInput {
    /// Query, key and value, with every key visible.
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self {
            query,
            key,
            value,
            pattern: Pattern::Full,
        }
    }

    /// Self-attention: query, key and value are `x`, `[batch, seq, d_model]`.
    pub fn self_attn(x: Tensor<3>) -> Self {
        Self::new(x.clone(), x.clone(), x)
    }

    /// Cross-attention from `query`, `[batch, seq_q, d_model]`, to `context`,
    /// `[batch, seq_k, d_context]`.
    pub fn cross_attn(query: Tensor<3>, context: Tensor<3>) -> Self {
        Self::new(query, context.clone(), context)
    }

    /// Restricts which keys each query may attend to.
    #[must_use]
    pub fn pattern(mut self, pattern: Pattern) -> Self {
        self.pattern = pattern;
        self
    }
}
