//! Linear recurrences: attention by a feature map, computed in chunks, in time and memory that
//! grow linearly with the sequence length.

pub(crate) mod chunked;
mod features;
pub(crate) mod heads;
mod redraw;
mod sight;
mod state;
mod weights;

use burn::tensor::Tensor;

pub(crate) use self::chunked::causal;
pub use self::features::{FeatureMap, RandomFeatures};
pub use self::redraw::RedrawnFeatures;
pub(crate) use self::sight::Sight;
pub use self::state::LinearState;
pub(crate) use self::weights::{linear_weights, retention_weights};
use crate::{AttentionOptions, AttentionShape};

/// Floating-point operations of a forward pass: keys into the state, queries out of it.
pub(crate) fn flops(shape: &AttentionShape, features: usize) -> f64 {
    let rows = shape.heads * shape.seq_q + shape.kv_heads * shape.seq_k;
    2.0 * (rows * features * shape.d_value) as f64
}

/// The first `d_value` numbers of each row by the one after them.
pub(crate) fn mean(sums: Tensor<4>, d_value: usize) -> Tensor<4> {
    let total = sums.clone().slice_dim(3, d_value..d_value + 1);
    sums.slice_dim(3, 0..d_value) * share_of(total)
}

/// What products are multiplied by to be shares of their total; zero where that is nothing.
pub(crate) fn share_of(total: Tensor<4>) -> Tensor<4> {
    // The total by its own size first: its square, by which the gradient is divided, is
    // then 1 however small it was. Features are not negative, so it is as good as nothing
    // only where all of it is.
    let size = total.clone().detach();
    let nothing = size.clone().lower_elem(1e-30);
    let size = size.mask_fill(nothing.clone(), 1.0);
    let total = (total / size.clone()).clamp_min(0.5);
    (total.recip() / size).mask_fill(nothing, 0.0)
}

/// A value more, which is one: its mean's numerator is the denominator of all.
pub(crate) fn with_ones(value: Tensor<4>) -> Tensor<4> {
    let ones = value.clone().slice_dim(3, 0..1).ones_like();
    Tensor::cat(vec![value, ones], 3)
}

/// `φ(q) · S`: the sums that queries `[batch, heads, seq_q, features]` get out of what was
/// seen, `[batch, kv_heads, features, width]`.
pub(crate) fn read_out(query: Tensor<4>, state: Tensor<4>) -> Tensor<4> {
    let [batch, heads, seq_q, features] = query.dims();
    let [_, kv_heads, _, width] = state.dims();
    // Heads that share a key and value head are one longer list of queries to it.
    query
        .reshape([batch, kv_heads, heads / kv_heads * seq_q, features])
        .matmul(state)
        .reshape([batch, heads, seq_q, width])
}

/// Options that speak of scores or weights have no meaning here.
pub(crate) fn refuse_scores(op: &str, options: &AttentionOptions) {
    let given = [
        ("softcap", options.softcap.is_some()),
        ("ALiBi", options.alibi.is_some()),
        ("bias", options.bias.is_some()),
        ("dropout", options.dropout.is_some()),
    ];
    for (name, is_there) in given {
        assert!(
            !is_there,
            "{op}: {name} is not supported, since it computes no scores or weights"
        );
    }
}
