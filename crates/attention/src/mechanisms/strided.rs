//! Neighbours, and every so many places one further away.
//!
//! Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
//!
//! ```text
//! query i sees key j    if |i - j| < stride, or i - j is a multiple of stride
//! ```
//!
//! With a stride near the root of the length, every place is two steps from every other,
//! and time grows like `n · sqrt(n)`: for a full or causal pattern, as many queries as keys, and
//! scores that do not depend on the position. With key lengths or another pattern, ALiBi, a bias or
//! dropout the result is the same, and time grows like `n²`.

use burn::tensor::Tensor;
use zoo_spec::Strided;

use super::{Attention, Inputs, Output, Params};
use crate::flash::{Flashed, flash, flash_with_log_sum_exp, merge};
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape, Pattern};

impl Attention for Strided {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        Some(strided_pattern(self.stride.unwrap_or(rounded_sqrt(seq_k))))
    }

    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let stride = self.stride.unwrap_or(rounded_sqrt(key.dims()[2]));
        strided(query, key, value, stride, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }
}

/// The integer closest to `sqrt(seq_k)`, at least 1.
pub(super) fn rounded_sqrt(seq_k: usize) -> usize {
    (seq_k as f64).sqrt().round().max(1.0) as usize
}

/// Attends to the `stride` neighbours on either side and to every `stride`-th place.
///
/// With a full or causal pattern, as many queries as keys, and scores that do not depend
/// on the place, it takes `seq · (2 stride + seq / stride)` products; else the same result
/// takes all of them.
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
/// If the tensors or the options do not fit together, or the stride is zero.
pub fn strided(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    stride: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = OP;
    let shape = options.check_call(op, [&query, &key, &value]);
    let seen = strided_pattern(stride);
    let is_causal = match options.pattern {
        Pattern::Full => Some(false),
        Pattern::Causal => Some(true),
        _ => None,
    };
    // Scores that depend on the place would have to be brought together with the keys.
    let is_free = options.alibi.is_none() && options.bias.is_none() && options.dropout.is_none();
    let is_far = stride < shape.seq_k;
    let Some(is_causal) = is_causal.filter(|_| is_free && is_far && shape.seq_q == shape.seq_k)
    else {
        let pattern = options.pattern.clone().and(seen);
        return flash(query, key, value, &options.clone().with_pattern(pattern));
    };

    // Rounded once, not part by part.
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let near = options.pattern.clone().and(neighbours(stride));
    let near = options.clone().with_pattern(near);
    let near = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &near);

    // Places that are a multiple of the stride apart are a sequence of their own.
    let rows = shape.seq_k.div_ceil(stride);
    let apart = [query, key, value].map(|tensor| sequences(tensor, rows, stride));
    let lengths: Vec<usize> = (0..shape.batch * stride)
        .map(|at| (shape.seq_k - at % stride).div_ceil(stride))
        .collect();
    let mut parts = vec![near];
    // The own place is among the neighbours: one row off, it is not seen again.
    parts.push(off_by_one(&apart, &lengths, options, Side::Before));
    if !is_causal {
        parts.push(off_by_one(&apart, &lengths, options, Side::After));
    }
    for part in &mut parts[1..] {
        part.context = together(part.context.clone(), &shape, stride);
        part.log_sum_exp = together(part.log_sum_exp.clone(), &shape, stride);
    }
    narrow(merge(&parts).context, stored)
}

/// What a query sees.
fn strided_pattern(stride: usize) -> Pattern {
    assert!(
        stride > 0,
        "{OP}: a stride must be at least 1, got {stride}"
    );
    neighbours(stride).or(Pattern::Strided { stride })
}

fn neighbours(stride: usize) -> Pattern {
    Pattern::Window {
        left: stride - 1,
        right: stride - 1,
    }
}

const OP: &str = "strided attention";

/// Which of the other places of its sequence a query sees.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Each query with the keys of its sequence on one side of it.
fn off_by_one(
    [query, key, value]: &[Tensor<4>; 3],
    lengths: &[usize],
    options: &AttentionOptions,
    side: Side,
) -> Flashed {
    let [batch, heads, rows, _] = query.dims();
    let (queries, keys, pattern) = match side {
        Side::Before => (1..rows, 0..rows - 1, Pattern::Causal),
        // The padding at the end is hidden by the lengths, one less for the row left out.
        Side::After => {
            let others: Vec<usize> = lengths.iter().map(|length| length.max(&1) - 1).collect();
            let after = Pattern::Window {
                left: 0,
                right: rows,
            };
            (
                0..rows - 1,
                1..rows,
                after.and(Pattern::key_lengths(others)),
            )
        }
    };
    let [key, value] = [key, value].map(|tensor| tensor.clone().slice_dim(2, keys.clone()));
    let query = query.clone().slice_dim(2, queries);
    let options = options.clone().with_pattern(pattern);
    let part = flash_with_log_sum_exp(query, key, value, &options);
    // The row left out sees nothing.
    let device = part.context.device();
    let [.., d_value] = part.context.dims();
    let blind = Flashed {
        context: Tensor::zeros([batch, heads, 1, d_value], (&device, part.context.dtype())),
        log_sum_exp: Tensor::full(
            [batch, heads, 1, 1],
            NOTHING,
            (&device, part.log_sum_exp.dtype()),
        ),
    };
    let join = |blind: Tensor<4>, seeing: Tensor<4>| match side {
        Side::Before => Tensor::cat(vec![blind, seeing], 2),
        Side::After => Tensor::cat(vec![seeing, blind], 2),
    };
    Flashed {
        context: join(blind.context, part.context),
        log_sum_exp: join(blind.log_sum_exp, part.log_sum_exp),
    }
}

/// The log-sum-exp of no score at all, as far as a finite number can say it.
const NOTHING: f32 = -2e38;

/// `[batch, heads, seq, d]` as `[batch * stride, heads, rows, d]`: place `i` is row
/// `i / stride` of sequence `i % stride`. Zeros after the last.
fn sequences(tensor: Tensor<4>, rows: usize, stride: usize) -> Tensor<4> {
    let [batch, heads, seq, d] = tensor.dims();
    let missing = rows * stride - seq;
    let tensor = if missing > 0 {
        let options = (&tensor.device(), tensor.dtype());
        let zeros = Tensor::zeros([batch, heads, missing, d], options);
        Tensor::cat(vec![tensor, zeros], 2)
    } else {
        tensor
    };
    tensor
        .reshape([batch, heads, rows, stride, d])
        .permute([0, 3, 1, 2, 4]) // [batch, stride, heads, rows, d]
        .reshape([batch * stride, heads, rows, d])
}

/// And back again.
fn together(tensor: Tensor<4>, shape: &AttentionShape, stride: usize) -> Tensor<4> {
    let [_, heads, rows, d] = tensor.dims();
    tensor
        .reshape([shape.batch, stride, heads, rows, d])
        .permute([0, 2, 3, 1, 4]) // [batch, heads, rows, stride, d]
        .reshape([shape.batch, heads, rows * stride, d])
        .slice_dim(2, 0..shape.seq_q)
}
