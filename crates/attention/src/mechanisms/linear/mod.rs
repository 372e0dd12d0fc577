//! Attention in time and memory that grow with the length alone. The weight of a key is
//! a product of features instead of an exponential, and products can be reordered:
//!
//! ```text
//! context_i = φ(q_i) · S / (φ(q_i) · z)       S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)
//! ```
//!
//! over the keys that query `i` sees: all of them, or those up to its own place. There
//! are no `seq_q x seq_k` weights, forward or backward.
//!
//! Katharopoulos et al., [Transformers are RNNs](https://arxiv.org/abs/2006.16236), 2020.
//! [`retention`] is the member of the family that forgets.

mod chunked;
mod features;
mod heads;
mod redrawn;
mod retention;
mod sight;
mod state;
mod weights;

use burn::tensor::Tensor;

pub use self::features::{FeatureMap, RandomFeatures};
pub use self::redrawn::RedrawnFeatures;
pub(crate) use self::retention::group_norm;
pub use self::retention::{retention, retention_decays};
use self::sight::Sight;
pub use self::state::LinearState;
pub(crate) use self::weights::{linear_weights, retention_weights};
use crate::precision::{check, narrow, widen};
use crate::{AttentionOptions, AttentionShape};

/// Attends by a product of features.
///
/// Half-precision tensors are computed in `f32` and rounded once, at the end. A query
/// whose features meet those of no key, so that all its products sum to less than 1e-30,
/// gets zeros, like one that sees nothing. Random features are taken as shares of the
/// largest of all keys of a head: before that one, keys that are far smaller count as none.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors do not fit together or are not of one number type of up to 32 bits; if
/// the pattern is more than full or causal, key lengths and key padding; if something is
/// to be done to scores, of which there are none.
pub fn linear(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    features: FeatureMap,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "linear attention";
    let shape = AttentionShape::of(op, &query, &key, &value);
    check(op, [query.dtype(), key.dtype(), value.dtype()]);
    options.check(op, &shape);
    refuse_scores(op, options);
    let features = features.ready(op, &query);
    let sight = Sight::of(op, &options.pattern, &shape, &query.device());

    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let scale = features.scale(options.scale, &shape);
    let attend = |[query, key, value]: [Tensor<4>; 3], sight: &Sight, shape: &AttentionShape| {
        let query = features.of_queries(query, scale);
        let (key, value, poison) = sight.finite(key, value, shape, options.assume_finite);
        let key = features.of_keys(key, scale, sight); // [batch, kv_heads, seq_k, features]
        let value = with_ones(value); // [batch, kv_heads, seq_k, d_value + 1]
        let sums = if sight.is_causal {
            chunked::causal(query, key, value, shape, None)
        } else {
            read_out(query, key.swap_dims(2, 3).matmul(value))
        }; // [batch, heads, seq_q, d_value + 1]
        let context = mean(sums, shape.d_value);
        match poison {
            Some(poison) => context + poison,
            None => context,
        }
    };
    let context = heads::some_at_a_time([query, key, value], &sight, &shape, attend);
    narrow(context, stored)
}

/// The first `d_value` numbers of each row by the one after them.
fn mean(sums: Tensor<4>, d_value: usize) -> Tensor<4> {
    let total = sums.clone().slice_dim(3, d_value..d_value + 1);
    sums.slice_dim(3, 0..d_value) * share_of(total)
}

/// What products are multiplied by to be shares of their total; zero where that is nothing.
fn share_of(total: Tensor<4>) -> Tensor<4> {
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
fn with_ones(value: Tensor<4>) -> Tensor<4> {
    let ones = value.clone().slice_dim(3, 0..1).ones_like();
    Tensor::cat(vec![value, ones], 3)
}

/// `φ(q) · S`: the sums that queries `[batch, heads, seq_q, features]` get out of what was
/// seen, `[batch, kv_heads, features, width]`.
fn read_out(query: Tensor<4>, state: Tensor<4>) -> Tensor<4> {
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
            "{op}: there are no scores or weights for a {name} to change"
        );
    }
}
