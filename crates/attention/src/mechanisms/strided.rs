//! The "strided" pattern: a sliding window and every `stride`-th key.
//!
//! Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
//!
//! ```text
//! query i attends to key j    if |i - j| < stride, or i - j is a multiple of stride
//! ```
//!
//! With a stride near `sqrt(n)`, every position reaches every other in two layers, and time grows
//! as `n · sqrt(n)` for a full or causal pattern, as many queries as keys, and no ALiBi, bias or
//! dropout. Otherwise the result is the same, and time grows as `n²`.

use burn::tensor::Tensor;
use zoo_spec::Strided;

use super::{Attention, Inputs, Params};
use crate::flash::{FlashOutput, flash, flash_with_log_sum_exp, merge};
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

impl Attention for Strided {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        Some(strided_pattern(self.stride.unwrap_or(rounded_sqrt(seq_k))))
    }

    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> AttentionOutput {
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

/// Attention to the keys less than `stride` away and to every `stride`-th key.
///
/// With a full or causal pattern, as many queries as keys, and no ALiBi, bias or dropout, it
/// computes `seq · (2 stride + seq / stride)` scores; otherwise all of them.
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
/// If the shapes or the options do not match, or the stride is zero.
pub fn strided(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    stride: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = OP;
    let shape = options.check_call(op, [&query, &key, &value]);
    let strided = strided_pattern(stride);
    let is_causal = match options.pattern {
        Pattern::Full => Some(false),
        Pattern::Causal => Some(true),
        _ => None,
    };
    // Options that depend on the position would have to be rearranged with the keys.
    let is_position_free =
        options.alibi.is_none() && options.bias.is_none() && options.dropout.is_none();
    let is_sparse = stride < shape.seq_k;
    let is_fast = is_position_free && is_sparse && shape.seq_q == shape.seq_k;
    let Some(is_causal) = is_causal.filter(|_| is_fast) else {
        let pattern = options.pattern.clone().and(strided);
        return flash(query, key, value, &options.clone().with_pattern(pattern));
    };

    // Rounded once, after merging.
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let near = options.pattern.clone().and(window(stride));
    let near = options.clone().with_pattern(near);
    let near = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &near);

    // Positions with the same remainder modulo the stride form a separate sequence.
    let rows = shape.seq_k.div_ceil(stride);
    let split = [query, key, value].map(|tensor| split_by_stride(tensor, rows, stride));
    let lengths: Vec<usize> = (0..shape.batch * stride)
        .map(|sequence| (shape.seq_k - sequence % stride).div_ceil(stride))
        .collect();
    let mut parts = vec![near];
    // Shifted by one row, since the query's own position is already in the window.
    parts.push(attend_shifted(&split, &lengths, options, Side::Before));
    if !is_causal {
        parts.push(attend_shifted(&split, &lengths, options, Side::After));
    }
    for part in &mut parts[1..] {
        part.context = join_strides(part.context.clone(), &shape, stride);
        part.log_sum_exp = join_strides(part.log_sum_exp.clone(), &shape, stride);
    }
    narrow(merge(&parts).context, stored)
}

fn strided_pattern(stride: usize) -> Pattern {
    assert!(
        stride > 0,
        "{OP}: a stride must be at least 1, got {stride}"
    );
    window(stride).or(Pattern::Strided { stride })
}

fn window(stride: usize) -> Pattern {
    Pattern::Window {
        left: stride - 1,
        right: stride - 1,
    }
}

const OP: &str = "strided attention";

/// The side of a query on which its keys are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// Attention of each query to the keys of its sequence on one side of it.
fn attend_shifted(
    [query, key, value]: &[Tensor<4>; 3],
    lengths: &[usize],
    options: &AttentionOptions,
    side: Side,
) -> FlashOutput {
    let [batch, heads, rows, _] = query.dims();
    let (queries, keys, pattern) = match side {
        Side::Before => (1..rows, 0..rows - 1, Pattern::Causal),
        // The lengths mask the padding at the end; one less for the row left out.
        Side::After => {
            let lengths: Vec<usize> = lengths.iter().map(|length| length.max(&1) - 1).collect();
            let after = Pattern::Window {
                left: 0,
                right: rows,
            };
            (
                0..rows - 1,
                1..rows,
                after.and(Pattern::key_lengths(lengths)),
            )
        }
    };
    let [key, value] = [key, value].map(|tensor| tensor.clone().slice_dim(2, keys.clone()));
    let query = query.clone().slice_dim(2, queries);
    let options = options.clone().with_pattern(pattern);
    let part = flash_with_log_sum_exp(query, key, value, &options);
    // The row left out is fully masked.
    let device = part.context.device();
    let [.., d_value] = part.context.dims();
    let masked_row = FlashOutput {
        context: Tensor::zeros([batch, heads, 1, d_value], (&device, part.context.dtype())),
        log_sum_exp: Tensor::full(
            [batch, heads, 1, 1],
            EMPTY_LOG_SUM_EXP,
            (&device, part.log_sum_exp.dtype()),
        ),
    };
    let join = |masked_row: Tensor<4>, rows: Tensor<4>| match side {
        Side::Before => Tensor::cat(vec![masked_row, rows], 2),
        Side::After => Tensor::cat(vec![rows, masked_row], 2),
    };
    FlashOutput {
        context: join(masked_row.context, part.context),
        log_sum_exp: join(masked_row.log_sum_exp, part.log_sum_exp),
    }
}

/// The log-sum-exp of an empty set of scores, as a finite number.
const EMPTY_LOG_SUM_EXP: f32 = -2e38;

/// `[batch, heads, seq, d]` as `[batch * stride, heads, rows, d]`: position `i` becomes row
/// `i / stride` of sequence `i % stride`. Padded with zeros.
fn split_by_stride(tensor: Tensor<4>, rows: usize, stride: usize) -> Tensor<4> {
    let [batch, heads, seq, d] = tensor.dims();
    let padding = rows * stride - seq;
    let tensor = if padding > 0 {
        let options = (&tensor.device(), tensor.dtype());
        let zeros = Tensor::zeros([batch, heads, padding, d], options);
        Tensor::cat(vec![tensor, zeros], 2)
    } else {
        tensor
    };
    tensor
        .reshape([batch, heads, rows, stride, d])
        .permute([0, 3, 1, 2, 4]) // [batch, stride, heads, rows, d]
        .reshape([batch * stride, heads, rows, d])
}

/// The inverse of [`split_by_stride`].
fn join_strides(tensor: Tensor<4>, shape: &AttentionShape, stride: usize) -> Tensor<4> {
    let [_, heads, rows, d] = tensor.dims();
    tensor
        .reshape([shape.batch, stride, heads, rows, d])
        .permute([0, 2, 3, 1, 4]) // [batch, heads, rows, stride, d]
        .reshape([shape.batch, heads, rows * stride, d])
        .slice_dim(2, 0..shape.seq_q)
}
