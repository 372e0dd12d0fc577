//! Standard softmax attention:
//!
//! ```text
//! weights = softmax(scale · query · keyᵀ)    over the visible keys
//! context = weights · value
//! ```
//!
//! with softcap, ALiBi, bias and dropout as set in [`AttentionOptions`].
//!
//! Vaswani et al., [Attention Is All You Need](https://arxiv.org/abs/1706.03762), 2017.
//!
//! It materialises the `seq_q x seq_k` weights, forward and backward, and returns them: the
//! reference implementation for the fast mechanisms, and the one to use if the weights are needed.

use burn::tensor::{Bool, DType, FloatDType, Int, Tensor, TensorData};
use zoo_spec::Standard;

use super::{Attention, Call, Inputs};
use crate::finite::{FiniteRows, poison};
use crate::matmul::matmul;
use crate::pattern::gather::Indices;
use crate::pattern::rule::query_position;
use crate::precision::{narrow, widen};
use crate::score_mod::{QueryPositions, ScoreMod, ScoreTile, finite_or_zero};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Dropout, Pattern};

impl Attention for Standard {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        standard(query, key, value, call.options)
    }
}

/// Softmax attention with materialised weights.
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
/// If the shapes or the options do not match, or the tensors do not have the same dtype of at most
/// 32 bits.
pub fn standard(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
) -> AttentionOutput {
    let op = "standard attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    options.check_device(op, &query.device());
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let scores = isolated_scores(query, key, options, &shape, may_mask(options));
    attend_with_scores(op, scores, value, options, &shape, stored)
}

/// Whether the options may mask a key, whose contents must then not reach the result.
pub(crate) fn may_mask(options: &AttentionOptions) -> bool {
    let has_mask = !matches!(options.pattern, Pattern::Full) || options.has_bias();
    has_mask && !options.assume_finite
}

/// The scores of all queries, with score options. If a key may be masked, [`dot_products`] with
/// non-finite queries and keys are NaN and have no gradient, so that masked non-finite rows do not
/// affect other rows.
pub(crate) fn isolated_scores(
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    may_mask: bool,
) -> Tensor<4> {
    let scale = options.scale.unwrap_or(shape.default_scale());
    let scores = if may_mask {
        let [query, key] = [query, key].map(FiniteRows::new);
        let scores = dot_products(query.finite, key.finite, scale, shape);
        scores + nan_scores(query.non_finite, key.non_finite, shape)
    } else {
        dot_products(query, key, scale, shape)
    };
    apply_score_options(scores, options, shape, 0..shape.seq_q)
}

/// NaN where a query or a key is not finite, zero elsewhere: `[batch, heads, queries, seq_k]`.
pub(crate) fn nan_scores(query: Tensor<4>, key: Tensor<4>, shape: &AttentionShape) -> Tensor<4> {
    let [batch, heads, _, seq_k] = shape.scores();
    let key = key
        .reshape([batch, shape.kv_heads, 1, seq_k])
        .expand([batch, shape.kv_heads, shape.group(), seq_k])
        .reshape([batch, heads, 1, seq_k]);
    poison(query + key)
}

/// `scale · q_i · k_j` for any number of queries: `[batch, heads, queries, seq_k]`.
pub(crate) fn dot_products(
    query: Tensor<4>,
    key: Tensor<4>,
    scale: f64,
    shape: &AttentionShape,
) -> Tensor<4> {
    let [batch, heads, queries, d_head] = query.dims();
    // Query heads that share a key/value head are concatenated along the sequence, so that keys and
    // values need not be repeated.
    let all_queries = shape.group() * queries;
    let query = query.reshape([batch, shape.kv_heads, all_queries, d_head]);
    let scores = matmul(query, key.swap_dims(2, 3)).mul_scalar(scale); // [batch, kv_heads, group * queries, seq_k]
    scores.reshape([batch, heads, queries, shape.seq_k])
}

/// Attention from scores `[batch, heads, seq_q, seq_k]`: masked softmax, and the weighted mean of
/// the values.
pub(crate) fn attend_with_scores(
    op: &str,
    scores: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    stored: DType,
) -> AttentionOutput {
    let mask = options.pattern.dense_mask(op, shape, &scores.device());
    let weights = softmax(scores, mask); // [batch, heads, seq_q, seq_k]
    attend_with_weights(weights, value, options, shape, stored, may_mask(options))
}

/// Applies the score function, softcap, ALiBi and biases to the scores of some queries,
/// `[batch, heads, queries, seq_k]`. The bias has the rows of these queries.
pub(crate) fn apply_score_options(
    scores: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    queries: impl Iterator<Item = usize>,
) -> Tensor<4> {
    let queries: Vec<usize> = queries.collect();
    let position = |query: &usize| query_position(shape, *query);
    let positions: Vec<i64> = queries.iter().map(position).collect();
    let relative = options.relative_bias_rows(shape, queries.into_iter());
    let scores = match &options.score_mod {
        Some(score_mod) => apply_score_mod(scores, score_mod, &positions),
        None => scores,
    };
    let scores = match options.softcap {
        Some(cap) => scores.div_scalar(cap).tanh().mul_scalar(cap),
        None => scores,
    };
    let scores = match &options.alibi {
        Some(slopes) => scores.clone() - alibi_penalty(slopes, positions, &scores),
        None => scores,
    };
    let bias = options.bias.clone().map(widen);
    [bias, relative]
        .into_iter()
        .flatten()
        .fold(scores, Tensor::add)
}

/// Scores modified by a function, for queries at these positions.
fn apply_score_mod(scores: Tensor<4>, score_mod: &ScoreMod, positions: &[i64]) -> Tensor<4> {
    let dims = scores.dims();
    let [_, heads, rows, seq_k] = dims;
    let options = (&scores.device(), scores.dtype());
    let before: Vec<f32> = scores.clone().detach().into_data().iter().collect();
    let (mut after, mut derivatives) = (before.clone(), vec![0.0; before.len()]);
    for (i, (scores, derivatives)) in after
        .chunks_exact_mut(seq_k)
        .zip(derivatives.chunks_exact_mut(seq_k))
        .enumerate()
    {
        score_mod.apply(ScoreTile {
            scores,
            derivatives,
            factor: 1.0,
            example: i / rows / heads,
            head: i / rows % heads,
            queries: QueryPositions::List(&positions[i % rows..][..1]),
            keys: Indices::Range(0..seq_k),
            strides: [seq_k, 1],
        });
    }
    let [before, after, derivatives] = [before, after, finite_or_zero(&derivatives)]
        .map(|values| Tensor::<4>::from_data(TensorData::new(values, dims), options));
    // The difference is zero, but has the derivative of the function.
    after + (scores - before) * derivatives
}

/// Attention from weights `[batch, heads, seq_q, seq_k]`: dropout and weighted sum of values.
pub(crate) fn attend_with_weights(
    weights: Tensor<4>,
    value: Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    stored: DType,
    may_mask: bool,
) -> AttentionOutput {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let dropped = match &options.dropout {
        Some(dropout) => weights.clone() * dropout_factors(dropout, shape, &weights),
        None => weights.clone(),
    };
    let dropped = dropped.reshape([batch, shape.kv_heads, shape.group() * seq_q, seq_k]);
    let context = if may_mask {
        let value = FiniteRows::new(value);
        let non_finite = dropped.clone().detach().abs().matmul(value.non_finite); // [batch, kv_heads, group * seq_q, 1]
        matmul(dropped, value.finite) + poison(non_finite)
    } else {
        matmul(dropped, value)
    }; // [batch, kv_heads, group * seq_q, d_value]
    let context = context.reshape([batch, heads, seq_q, shape.d_value]);

    AttentionOutput {
        context: narrow(context, stored),
        weights: Some(narrow(weights, stored)),
    }
}

/// `slope · distance` for queries at `positions`: `[1, heads, queries, seq_k]`.
fn alibi_penalty(slopes: &[f32], positions: Vec<i64>, scores: &Tensor<4>) -> Tensor<4> {
    let [_, heads, queries, seq_k] = scores.dims();
    let (device, dtype) = (&scores.device(), scores.dtype());
    let positions = TensorData::new(positions, [1, 1, queries, 1]);
    let positions = Tensor::<4, Int>::from_data(positions, device);
    let keys = Tensor::<1, Int>::arange(0..seq_k as i64, device).reshape([1, 1, 1, seq_k]);
    let distance = (keys - positions).abs().cast(FloatDType::from(dtype)); // [1, 1, queries, seq_k]
    let slopes = TensorData::new(slopes.to_vec(), [1, heads, 1, 1]);
    distance * Tensor::from_data(slopes, (device, dtype))
}

/// The dropout factors of all weights: `[batch, heads, seq_q, seq_k]`.
fn dropout_factors(dropout: &Dropout, shape: &AttentionShape, weights: &Tensor<4>) -> Tensor<4> {
    tensor_from_rows(shape, weights, |row, factors| {
        dropout.write_factors(row, 0..shape.seq_k, factors);
    })
}

/// A tensor `[batch, heads, seq_q, seq_k]` on the device and in the dtype of `like`; `write`
/// appends the row of `[example, head, query]`.
pub(crate) fn tensor_from_rows(
    shape: &AttentionShape,
    like: &Tensor<4>,
    write: impl Fn([usize; 3], &mut Vec<f32>),
) -> Tensor<4> {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let mut values = Vec::with_capacity(batch * heads * seq_q * seq_k);
    for example in 0..batch {
        for head in 0..heads {
            for query in 0..seq_q {
                write([example, head, query], &mut values);
            }
        }
    }
    Tensor::from_data(
        TensorData::new(values, [batch, heads, seq_q, seq_k]),
        (&like.device(), like.dtype()),
    )
}

/// Softmax over the last dimension; keys that any of the masks excludes get zero, so a fully masked
/// row is all zeros.
pub(crate) fn softmax(
    scores: Tensor<4>,
    masks: impl IntoIterator<Item = Tensor<4, Bool>>,
) -> Tensor<4> {
    let shape = scores.dims();
    let masks: Vec<_> = masks.into_iter().map(|mask| mask.expand(shape)).collect();
    let fill = |tensor: Tensor<4>, value: f32| {
        masks
            .iter()
            .fold(tensor, |tensor, mask| tensor.mask_fill(mask.clone(), value))
    };

    // The lowest finite number instead of minus infinity: WGSL does not guarantee infinities, and
    // -inf - (-inf) in a fully masked row is NaN.
    let scores = fill(scores, f32::MIN);
    // Softmax and its gradient are invariant to a shift of the row, so the shift is detached. It is
    // finite, though a bias may not be.
    let max = scores.clone().detach().max_dim(3).clamp_min(f32::MIN); // [batch, heads, seq_q, 1]
    let exponentials = fill(scores.sub(max).exp(), 0.0);
    // At least 1 because of the maximum, unless the row is fully masked; then any positive number
    // gives the correct result of zero.
    let sum = exponentials.clone().sum_dim(3).clamp_min(0.5); // [batch, heads, seq_q, 1]
    exponentials.div(sum)
}
