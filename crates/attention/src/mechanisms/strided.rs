//! The "strided" pattern: a sliding window and every `stride`-th key.
//!
//! Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
//!
//! ```text
//! query i attends to key j    if |i - j| < stride, or i - j is a multiple of stride
//! ```
//!
//! With a stride near `sqrt(n)`, every position reaches every other in two layers, and time grows
//! as `n · sqrt(n)`. On wgpu, Vulkan and CUDA, this holds for a full or causal pattern, as many
//! queries as keys, and no ALiBi, bias, dropout or score function; with LibTorch on CUDA, without a
//! bias, a softcap or a score function. Otherwise the result is the same, and time grows as `n²`.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use zoo_spec::Strided;

use super::{Attention, Call, Inputs};
use crate::flash::{
    FlashOutput, flash, flash_gathered, flash_with_log_sum_exp, merge, supports_gather,
};
use crate::memo::Memo;
use crate::pattern::gather::{GatherPlan, Group, MAX_QUERIES, Pass};
use crate::pattern::rule::{Rule, query_position};
use crate::precision::{narrow, widen};
use crate::shape::pad_rows;
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

impl Attention for Strided {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        Some(strided_pattern(self.stride.unwrap_or(rounded_sqrt(seq_k))))
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let stride = self.stride.unwrap_or(rounded_sqrt(key.dims()[2]));
        strided(query, key, value, stride, call.options).into()
    }
}

/// The integer closest to `sqrt(seq_k)`, at least 1.
pub(super) fn rounded_sqrt(seq_k: usize) -> usize {
    (seq_k as f64).sqrt().round().max(1.0) as usize
}

/// Attention to the keys less than `stride` away and to every `stride`-th key.
///
/// It computes `seq · (2 stride + seq / stride)` scores; on wgpu, Vulkan and CUDA all of
/// them with ALiBi, a bias, dropout, a score function, a pattern that is not full or causal, or fewer
/// queries than keys.
///
/// Shapes and panics are those of [`flash`](crate::flash()); it also panics if the stride is
/// zero.
pub fn strided(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    stride: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let strided = strided_pattern(stride);
    if stride < shape.seq_k && supports_gather([&query, &key, &value], options) {
        let plan = gather_plan(stride, &options.pattern, &shape);
        let tensors = [query, key, value];
        return flash_gathered(OP, tensors, options, strided.rule(), plan);
    }
    let is_causal = causal_if_separable(options, &shape);
    let Some(is_causal) = is_causal.filter(|_| stride < shape.seq_k) else {
        return flash(query, key, value, &options.restricted_to(strided));
    };

    // Rounded once, after merging.
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let near = options.restricted_to(Pattern::window(stride - 1));
    let near = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &near);

    // Positions with the same remainder modulo the stride form a separate sequence.
    let rows = shape.seq_k.div_ceil(stride);
    let split = [query, key, value].map(|tensor| split_by_stride(tensor, rows, stride));
    let lengths: Vec<usize> = (0..shape.batch * stride)
        .map(|sequence| (shape.seq_k - sequence % stride).div_ceil(stride))
        .collect();
    // Shifted by one row, since the query's own position is already in the window.
    let on_side = |side: Side| {
        let part = attend_shifted(&split, &lengths, options, side);
        FlashOutput {
            context: join_strides(part.context, &shape, stride),
            log_sum_exp: join_strides(part.log_sum_exp, &shape, stride),
        }
    };
    let mut parts = vec![near, on_side(Side::Before)];
    if !is_causal {
        parts.push(on_side(Side::After));
    }
    narrow(merge(&parts).context, stored)
}

/// Whether attention is causal, if its positions may be rearranged and its keys split into parts:
/// with a full or causal pattern, as many queries as keys, and no option that depends on positions.
pub(super) fn causal_if_separable(
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Option<bool> {
    let is_position_free = options.alibi.is_none()
        && !options.has_bias()
        && options.dropout.is_none()
        && options.score_mod.is_none();
    match options.pattern {
        _ if !is_position_free || shape.seq_q != shape.seq_k => None,
        Pattern::Full => Some(false),
        Pattern::Causal => Some(true),
        _ => None,
    }
}

/// The keys of the window in the first pass, and every `stride`-th key in the second.
fn gather_plan(stride: usize, pattern: &Pattern, shape: &AttentionShape) -> Arc<GatherPlan> {
    static MEMO: Memo<(usize, Rule, [usize; 3]), GatherPlan> = Memo::new();
    pattern.check(OP, shape);
    let AttentionShape {
        batch,
        seq_q,
        seq_k,
        ..
    } = *shape;
    MEMO.get(
        (stride, pattern.rule(), [batch, seq_q, seq_k]),
        |(_, rule, _)| {
            let side = stride - 1;
            let near = consecutive_queries(shape, |positions| {
                let keys = positions.start - side as i64..positions.end + side as i64;
                key_range(shape, keys).collect()
            });
            let multiples = (0..stride).map(|remainder| Group {
                queries: every(remainder, stride, seq_q, query_position(shape, 0)),
                keys: every(remainder, stride, seq_k, 0),
            });
            let passes = [
                Pass {
                    groups: near,
                    rule: rule.clone().and(Rule::Window {
                        left: side,
                        right: side,
                    }),
                    excludes_own_position: false,
                },
                Pass {
                    groups: multiples.collect(),
                    rule: rule.clone(),
                    // It is in the window.
                    excludes_own_position: true,
                },
            ];
            GatherPlan::from_passes(shape, &passes)
        },
    )
}

/// All queries in groups of consecutive ones, with the keys that `keys` returns for their positions.
pub(super) fn consecutive_queries(
    shape: &AttentionShape,
    keys: impl Fn(Range<i64>) -> Vec<u32>,
) -> Vec<Group> {
    let group = |first: usize| {
        let queries = first..shape.seq_q.min(first + MAX_QUERIES);
        let [start, end] = [queries.start, queries.end].map(|query| query_position(shape, query));
        Group {
            queries: (queries.start as u32..queries.end as u32).collect(),
            keys: keys(start..end),
        }
    };
    (0..shape.seq_q).step_by(MAX_QUERIES).map(group).collect()
}

/// The positions of a range that are those of keys.
pub(super) fn key_range(shape: &AttentionShape, positions: Range<i64>) -> Range<u32> {
    let [start, end] = [positions.start, positions.end].map(|at| at.clamp(0, shape.seq_k as i64));
    start as u32..end as u32
}

/// The indices below `seq` whose position, `index + offset`, has this remainder.
fn every(remainder: usize, stride: usize, seq: usize, offset: i64) -> Vec<u32> {
    let first = (remainder as i64 - offset).rem_euclid(stride as i64);
    (first as u32..seq as u32).step_by(stride).collect()
}

fn strided_pattern(stride: usize) -> Pattern {
    assert!(
        stride > 0,
        "{OP}: a stride must be at least 1, got {stride}"
    );
    Pattern::window(stride - 1).or(Pattern::Strided { stride })
}

const OP: &str = "strided attention";

/// The side of a query on which its keys are.
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
    let [_, _, rows, _] = query.dims();
    let (without_first, without_last) = (1..rows, 0..rows - 1);
    let (queries, keys, pattern, left_out) = match side {
        Side::Before => (without_first, without_last, Pattern::Causal, [1, 0]),
        // The lengths mask the padding at the end; one less for the row left out.
        Side::After => {
            let lengths: Vec<usize> = lengths.iter().map(|length| length.max(&1) - 1).collect();
            let (left, right) = (0, rows);
            let after = Pattern::Window { left, right };
            let pattern = after.and(Pattern::key_lengths(lengths));
            (without_last, without_first, pattern, [0, 1])
        }
    };
    let [key, value] = [key, value].map(|tensor| tensor.clone().slice_dim(2, keys.clone()));
    let query = query.clone().slice_dim(2, queries);
    let options = options.clone().with_pattern(pattern);
    let part = flash_with_log_sum_exp(query, key, value, &options);
    // The row left out is fully masked.
    FlashOutput {
        context: pad_rows(part.context, left_out, 0.0),
        log_sum_exp: pad_rows(part.log_sum_exp, left_out, EMPTY_LOG_SUM_EXP),
    }
}

/// The log-sum-exp of an empty set of scores, as a finite number.
const EMPTY_LOG_SUM_EXP: f32 = -2e38;

/// `[batch, heads, seq, d]` as `[batch * stride, heads, rows, d]`: position `i` becomes row
/// `i / stride` of sequence `i % stride`. Padded with zeros.
fn split_by_stride(tensor: Tensor<4>, rows: usize, stride: usize) -> Tensor<4> {
    let [batch, heads, seq, d] = tensor.dims();
    pad_rows(tensor, [0, rows * stride - seq], 0.0)
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
