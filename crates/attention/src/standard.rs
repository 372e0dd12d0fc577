//! Softmax attention as it is defined:
//!
//! ```text
//! weights = softmax(scale · query · keyᵀ)    over the keys a query may see
//! context = weights · value
//! ```
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! It holds the whole `seq_q x seq_k` matrix of weights, forward and backward,
//! and gives it back: the reference the fast mechanisms are read beside, and the
//! one to take when the weights themselves are wanted.

use burn::tensor::{Bool, Tensor};

use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape};

/// What [`standard`] returns.
#[derive(Debug, Clone)]
pub struct Attended {
    /// `[batch, heads, seq_q, d_value]`: for each query, the mean of the values it attends to.
    pub context: Tensor<4>,
    /// `[batch, heads, seq_q, seq_k]`: how much each query attends to each key.
    pub weights: Tensor<4>,
}

/// Attends with every weight held in memory.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - context: `[batch, heads, seq_q, d_value]`
/// - weights: `[batch, heads, seq_q, seq_k]`
///
/// # Panics
///
/// If the tensors or the pattern do not fit together.
pub fn standard(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Attended {
    let op = "standard attention";
    let shape = AttentionShape::of(op, &query, &key, &value);
    let &AttentionShape {
        batch,
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
    } = &shape;
    let scale = options.scale.unwrap_or(shape.default_scale());
    let hidden = options.pattern.hidden(op, &shape, &query.device());

    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);

    // Query heads that share a KV head lie side by side, so their queries are one
    // longer list of queries to that head: K and V are used where they are.
    let all_queries = shape.group() * seq_q;
    let query = query.reshape([batch, kv_heads, all_queries, d_head]);
    let scores = query.matmul(key.swap_dims(2, 3)).mul_scalar(scale); // [batch, kv_heads, group * seq_q, seq_k]
    let weights = softmax(scores.reshape([batch, heads, seq_q, seq_k]), hidden); // [batch, heads, seq_q, seq_k]
    let context = weights
        .clone()
        .reshape([batch, kv_heads, all_queries, seq_k])
        .matmul(value) // [batch, kv_heads, group * seq_q, d_value]
        .reshape([batch, heads, seq_q, d_value]);

    Attended {
        context: narrow(context, stored),
        weights: narrow(weights, stored),
    }
}

/// Softmax over the last dimension that gives hidden places zero, and a row
/// that is all hidden nothing but zeros.
fn softmax(scores: Tensor<4>, hidden: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let shape = scores.dims();
    let hidden = hidden.map(|hidden| hidden.expand(shape));

    // The lowest finite number instead of minus infinity: infinities are not
    // part of what WGSL promises, and -inf - (-inf) in a row that sees nothing is NaN.
    let scores = match &hidden {
        Some(hidden) => scores.mask_fill(hidden.clone(), f32::MIN),
        None => scores,
    };
    // Softmax does not change when a row is shifted, so neither does its
    // gradient: the shift is detached.
    let largest = scores.clone().detach().max_dim(3); // [batch, heads, seq_q, 1]
    let exponentials = scores.sub(largest).exp();
    let exponentials = match hidden {
        Some(hidden) => exponentials.mask_fill(hidden, 0.0),
        None => exponentials,
    };
    // At least 1, from the largest score itself, unless the row sees nothing;
    // then any positive number makes 0 / sum the zero it should be.
    let sum = exponentials.clone().sum_dim(3).clamp_min(0.5); // [batch, heads, seq_q, 1]
    exponentials.div(sum)
}
