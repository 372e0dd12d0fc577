//! Softmax attention as it is defined:
//!
//! ```text
//! weights = softmax(scale · query · keyᵀ)    over the keys a query may see
//! context = weights · value
//! ```
//!
//! with what [`AttentionOptions`] say in between.
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! It holds the whole `seq_q x seq_k` matrix of weights, forward and backward,
//! and gives it back: the reference the fast mechanisms are read beside, and the
//! one to take when the weights themselves are wanted.

use burn::tensor::{Bool, DType, Device, FloatDType, Int, Tensor, TensorData};
use zoo_spec::Standard;

pub use super::attention::Attended;
use super::{Attention, Inputs, Output, Params};
use crate::finite::{FiniteRows, poison};
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape, Dropout, Pattern};

impl Attention for Standard {
    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        standard(query, key, value, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }
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
/// If the tensors or the options do not fit together, or the tensors are not of one
/// number type of up to 32 bits.
pub fn standard(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> Attended {
    let op = "standard attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    options.check_device(op, &query.device());
    let scale = options.scale.unwrap_or(shape.default_scale());

    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);

    let scores = scores_of(query, key, scale, &shape, may_hide(options));
    attend_by_scores(op, scores, value, options, &shape, stored)
}

/// Whether the options may hide a key from a query that must not see what is in it.
pub(crate) fn may_hide(options: &AttentionOptions) -> bool {
    let has_mask = !matches!(options.pattern, Pattern::Full) || options.bias.is_some();
    has_mask && !options.assume_finite
}

/// [`products`] that are NaN for queries and keys that are not finite, without a gradient for
/// these; so that they reach nothing else where they are hidden.
pub(crate) fn scores_of(
    query: Tensor<4>,
    key: Tensor<4>,
    scale: f64,
    shape: &AttentionShape,
    may_hide: bool,
) -> Tensor<4> {
    if !may_hide {
        return products(query, key, scale, shape);
    }
    let [query, key] = [query, key].map(FiniteRows::of);
    let scores = products(query.finite, key.finite, scale, shape);
    scores + poison_of_scores(query.infinite, key.infinite, shape)
}

/// What makes scores NaN where a query or a key is not finite: `[batch, heads, queries, seq_k]`.
pub(crate) fn poison_of_scores(
    query: Tensor<4>,
    key: Tensor<4>,
    shape: &AttentionShape,
) -> Tensor<4> {
    let [batch, heads, _, seq_k] = shape.scores();
    let key = key
        .reshape([batch, shape.kv_heads, 1, seq_k])
        .expand([batch, shape.kv_heads, shape.group(), seq_k])
        .reshape([batch, heads, 1, seq_k]);
    poison(query + key)
}

/// `scale · q_i · k_j` for the queries there are: `[batch, heads, queries, seq_k]`.
pub(crate) fn products(
    query: Tensor<4>,
    key: Tensor<4>,
    scale: f64,
    shape: &AttentionShape,
) -> Tensor<4> {
    let [batch, heads, queries, d_head] = query.dims();
    // Query heads that share a KV head lie side by side, so their queries are one
    // longer list of queries to that head: K and V are used where they are.
    let all_queries = shape.group() * queries;
    let query = query.reshape([batch, shape.kv_heads, all_queries, d_head]);
    let scores = query.matmul(key.swap_dims(2, 3)).mul_scalar(scale); // [batch, kv_heads, group * queries, seq_k]
    scores.reshape([batch, heads, queries, shape.seq_k])
}

/// From scores `[batch, heads, seq_q, seq_k]` on: what the options do to them, the softmax
/// over what is seen, and the mean of the values.
pub(crate) fn attend_by_scores(
    op: &str,
    scores: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    stored: DType,
) -> Attended {
    let hidden = options.pattern.hidden(op, shape, &scores.device());
    let scores = changed(scores, options, all_places(shape));
    let weights = softmax(scores, hidden); // [batch, heads, seq_q, seq_k]
    attend_by_weights(weights, value, options, shape, stored, may_hide(options))
}

/// Where the queries are among the keys: the last level with the last.
pub(crate) fn all_places(shape: &AttentionShape) -> impl FnOnce(&Device) -> Tensor<1, Int> {
    let (seq_q, seq_k) = (shape.seq_q as i64, shape.seq_k as i64);
    move |device| Tensor::arange(seq_k - seq_q..seq_k, device)
}

/// Scores `[batch, heads, queries, seq_k]`, with all that options do to them but hiding.
/// The bias is that of these queries, which are at `places`.
pub(crate) fn changed(
    scores: Tensor<4>,
    options: &AttentionOptions,
    places: impl FnOnce(&Device) -> Tensor<1, Int>,
) -> Tensor<4> {
    let scores = match options.softcap {
        Some(cap) => scores.div_scalar(cap).tanh().mul_scalar(cap),
        None => scores,
    };
    let scores = match &options.alibi {
        Some(slopes) => scores.clone() - falling(slopes, places(&scores.device()), &scores),
        None => scores,
    };
    match &options.bias {
        Some(bias) => scores + widen(bias.clone()),
        None => scores,
    }
}

/// From weights `[batch, heads, seq_q, seq_k]` on: some are forgotten, and the others
/// weigh the values.
pub(crate) fn attend_by_weights(
    weights: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    stored: DType,
    may_hide: bool,
) -> Attended {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let kept = match &options.dropout {
        Some(dropout) => weights.clone() * factors(dropout, shape, &weights),
        None => weights.clone(),
    };
    let kept = kept.reshape([batch, shape.kv_heads, shape.group() * seq_q, seq_k]);
    let context = if may_hide {
        let value = FiniteRows::of(value);
        let met = kept.clone().detach().abs().matmul(value.infinite); // [batch, kv_heads, group * seq_q, 1]
        kept.matmul(value.finite) + poison(met)
    } else {
        kept.matmul(value)
    }; // [batch, kv_heads, group * seq_q, d_value]
    let context = context.reshape([batch, heads, seq_q, shape.d_value]);

    Attended {
        context: narrow(context, stored),
        weights: narrow(weights, stored),
    }
}

/// What ALiBi takes off the scores of queries at these places: `[1, heads, queries, seq_k]`.
fn falling(slopes: &[f32], places: Tensor<1, Int>, scores: &Tensor<4>) -> Tensor<4> {
    let [_, heads, queries, seq_k] = scores.dims();
    let (device, dtype) = (&scores.device(), scores.dtype());
    let places = places.reshape([1, 1, queries, 1]);
    let keys = Tensor::<1, Int>::arange(0..seq_k as i64, device).reshape([1, 1, 1, seq_k]);
    let distance = (keys - places).abs().cast(FloatDType::from(dtype)); // [1, 1, queries, seq_k]
    let slopes = TensorData::new(slopes.to_vec(), [1, heads, 1, 1]);
    distance * Tensor::from_data(slopes, (device, dtype))
}

/// What dropout multiplies weights by: `[batch, heads, seq_q, seq_k]`.
fn factors(dropout: &Dropout, shape: &AttentionShape, weights: &Tensor<4>) -> Tensor<4> {
    by_rows(shape, weights, |row, factors| {
        dropout.write_factors(row, 0..shape.seq_k, factors);
    })
}

/// Numbers for every pair of query and key, `[batch, heads, seq_q, seq_k]`, beside a tensor
/// like them: `write` adds those of `[example, head, query]`.
pub(crate) fn by_rows(
    shape: &AttentionShape,
    like: &Tensor<4>,
    write: impl Fn([usize; 3], &mut Vec<f32>),
) -> Tensor<4> {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let mut numbers = Vec::with_capacity(batch * heads * seq_q * seq_k);
    for example in 0..batch {
        for head in 0..heads {
            for query in 0..seq_q {
                write([example, head, query], &mut numbers);
            }
        }
    }
    Tensor::from_data(
        TensorData::new(numbers, [batch, heads, seq_q, seq_k]),
        (&like.device(), like.dtype()),
    )
}

/// Softmax over the last dimension that gives places that any of the masks hides zero, and
/// a row that is all hidden nothing but zeros.
pub(crate) fn softmax(
    scores: Tensor<4>,
    hidden: impl IntoIterator<Item = Tensor<4, Bool>>,
) -> Tensor<4> {
    let shape = scores.dims();
    let hidden: Vec<_> = (hidden.into_iter())
        .map(|hidden| hidden.expand(shape))
        .collect();
    let fill = |tensor: Tensor<4>, number: f32| {
        let fill =
            |tensor: Tensor<4>, hidden: &Tensor<4, Bool>| tensor.mask_fill(hidden.clone(), number);
        hidden.iter().fold(tensor, fill)
    };

    // The lowest finite number instead of minus infinity: infinities are not
    // part of what WGSL promises, and -inf - (-inf) in a row that sees nothing is NaN.
    let scores = fill(scores, f32::MIN);
    // Softmax does not change when a row is shifted, so neither does its
    // gradient: the shift is detached. It is finite, though a bias may not be.
    let largest = scores.clone().detach().max_dim(3).clamp_min(f32::MIN); // [batch, heads, seq_q, 1]
    let exponentials = fill(scores.sub(largest).exp(), 0.0);
    // At least 1, from the largest score itself, unless the row sees nothing;
    // then any positive number makes 0 / sum the zero it should be.
    let sum = exponentials.clone().sum_dim(3).clamp_min(0.5); // [batch, heads, seq_q, 1]
    exponentials.div(sum)
}
