//! Windowed attention in chunks: each chunk of queries attends to a range of keys, with a band mask
//! that is the same for every chunk.
//!
//! ```text
//! queries   |   chunk   |
//! keys   |left|  chunk  |right|
//! ```
//!
//! All chunks with a complete range of keys are one call of the [kernel](super::efficient), on
//! overlapping views without a copy. The chunks at both ends have fewer keys and are calls of their
//! own.

use std::ops::Range;

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{BackwardInputs, EfficientArgs, aligned};
use super::efficient::{MASKED_BIAS, broadcast_bias, kernel_backward, kernel_forward, pad_to_32};
use crate::AttentionShape;
use crate::flash::call::TiledSettings;

/// Queries in a chunk: half of the window, so that half of the computed scores are visible;
/// a multiple of 64, and enough to occupy the device.
fn chunk_size([left, right]: [usize; 2]) -> usize {
    ((left + right) / 2).next_multiple_of(64).clamp(64, 1024)
}

/// Whether a sequence is long enough to be split into chunks.
pub(super) fn is_worthwhile(seq: usize, window: [usize; 2]) -> bool {
    seq >= 2 * (chunk_size(window) + window[0] + window[1])
}

/// Adjacent chunks that are one call of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// The queries of all chunks.
    queries: Range<usize>,
    /// The number of chunks.
    chunks: usize,
    /// The keys of the first chunk.
    keys: Range<usize>,
}

impl Part {
    /// Queries per chunk.
    fn rows(&self) -> usize {
        self.queries.len() / self.chunks
    }
}

fn parts(seq: usize, [left, right]: [usize; 2]) -> Vec<Part> {
    let size = chunk_size([left, right]);
    let mut parts: Vec<Part> = Vec::new();
    for start in (0..seq).step_by(size) {
        let queries = start..seq.min(start + size);
        let keys = start.saturating_sub(left)..seq.min(start + size + right);
        let is_complete = start >= left && start + size + right <= seq;
        match parts.last_mut() {
            Some(last) if is_complete && last.keys.len() == left + size + right => {
                last.queries.end = queries.end;
                last.chunks += 1;
            }
            _ => parts.push(Part {
                queries,
                chunks: 1,
                keys,
            }),
        }
    }
    parts
}

/// A view of the chunks of a part, `[batch · heads, rows, chunks, d]`, of a contiguous tensor.
fn chunk_view(tensor: &Tensor, first: usize, rows: usize, part: &Part) -> Tensor {
    let size = tensor.size();
    let (seq, width) = (size[2], size[3]);
    tensor.narrow(2, first as i64, rows as i64).as_strided(
        [size[0] * size[1], rows as i64, part.chunks as i64, width],
        [seq * width, width, part.rows() as i64 * width, 1],
        None,
    )
}

/// A bias of zero within the window and [`MASKED_BIAS`] elsewhere, for the queries and keys of a
/// chunk.
fn band_bias(part: &Part, [left, right]: [usize; 2], like: &Tensor) -> Tensor {
    let (rows, keys) = (part.rows() as i64, part.keys.len() as i64);
    // The first key of the part relative to its first query.
    let first = part.keys.start as i64 - part.queries.start as i64;
    let masked = Tensor::full([rows, keys], MASKED_BIAS, (like.kind(), like.device()));
    // The keys from `-left` to `right` of a query are visible; `triu` and `tril` set them to zero.
    let later = masked.triu(right as i64 - first + 1);
    let earlier = masked.tril(-(left as i64) - first - 1);
    (later + earlier).reshape([1, 1, rows, keys])
}

fn kernel_args(
    part: &Part,
    window: [usize; 2],
    query: &Tensor,
    settings: &TiledSettings,
) -> EfficientArgs {
    let batch = settings.shape.batch * settings.shape.heads;
    let dims = [batch, part.chunks, part.rows(), part.keys.len()].map(|size| size as i64);
    EfficientArgs {
        mask: Mask::None,
        bias: Some(broadcast_bias(&band_bias(part, window, query), dims)),
        may_mask_rows: false,
        scale: settings.scale,
        dropout: None,
    }
}

/// Contiguous query, key and value, with keys and values repeated for each query head.
fn repeat_heads(tensors: &[Tensor; 3], shape: &AttentionShape) -> [Tensor; 3] {
    let [query, key, value] = tensors;
    let repeat = |tensor: &Tensor| match shape.group() {
        1 => tensor.contiguous(),
        group => tensor.repeat_interleave_self_int(group as i64, 1, None),
    };
    [query.contiguous(), repeat(key), repeat(value)]
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    window: [usize; 2],
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let shape = &settings.shape;
    let [query, key, value] = repeat_heads(tensors, shape);
    let [batch, heads] = [shape.batch, shape.heads].map(|size| size as i64);
    let mut contexts = Vec::new();
    let mut log_sum_exps = Vec::new();
    for part in parts(shape.seq_q, window) {
        let args = kernel_args(&part, window, &query, settings);
        let [context, log_sum_exp] = kernel_forward(
            [
                &chunk_view(&query, part.queries.start, part.rows(), &part),
                &chunk_view(&key, part.keys.start, part.keys.len(), &part),
                &chunk_view(&value, part.keys.start, part.keys.len(), &part),
            ],
            &args,
        );
        let rows = part.queries.len() as i64;
        let size = [batch, heads, rows, shape.d_value as i64];
        contexts.push(context.transpose(1, 2).reshape(size));
        let log_sum_exp = log_sum_exp.narrow(2, 0, part.rows() as i64);
        log_sum_exps.push(log_sum_exp.reshape([batch, heads, rows, 1]));
    }
    [Tensor::cat(&contexts, 2), Tensor::cat(&log_sum_exps, 2)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    window: [usize; 2],
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let shape = &settings.shape;
    let [query, key, value] = repeat_heads(tensors, shape);
    let [context, d_context] =
        [results.context, results.d_context].map(|tensor| aligned(&tensor.contiguous()));
    let log_sum_exp = results.log_sum_exp.contiguous();
    let [batch, heads] = [shape.batch, shape.heads].map(|size| size as i64);
    let mut d_queries = Vec::new();
    let (mut d_key, mut d_value) = (key.zeros_like(), value.zeros_like());
    for part in parts(shape.seq_q, window) {
        let args = kernel_args(&part, window, &query, settings);
        let query_chunks =
            |tensor: &Tensor| chunk_view(tensor, part.queries.start, part.rows(), &part);
        let key_chunks =
            |tensor: &Tensor| chunk_view(tensor, part.keys.start, part.keys.len(), &part);
        // `[batch · heads, chunks, rows]`
        let log_sum_exp = query_chunks(&log_sum_exp).squeeze_dim(3).transpose(1, 2);
        let log_sum_exp = pad_to_32(&log_sum_exp);
        let ([d_query, d_key_part, d_value_part], _) = kernel_backward(
            [
                &query_chunks(&query),
                &key_chunks(&key),
                &key_chunks(&value),
            ],
            [
                &query_chunks(&context),
                &log_sum_exp,
                &query_chunks(&d_context),
            ],
            &args,
            false,
        );
        let size = [batch, heads, part.queries.len() as i64, shape.d_head as i64];
        d_queries.push(d_query.transpose(1, 2).reshape(size));
        add_chunks(&mut d_key, &d_key_part, &part);
        add_chunks(&mut d_value, &d_value_part, &part);
    }
    let sum_group = |grad: Tensor, width: usize| match shape.group() {
        1 => grad,
        group => {
            let size = [shape.batch, shape.kv_heads, group, shape.seq_k, width];
            grad.reshape(size.map(|size| size as i64))
                .sum_dim_intlist(2, false, None::<Kind>)
        }
    };
    [
        Tensor::cat(&d_queries, 2),
        sum_group(d_key, shape.d_head),
        sum_group(d_value, shape.d_value),
    ]
}

/// Adds the gradients of the keys of each chunk, `[batch · heads, keys, chunks, d]`. Each step adds
/// as many rows as there are between chunks, so that the written views do not overlap.
fn add_chunks(sum: &mut Tensor, grad: &Tensor, part: &Part) {
    let keys = part.keys.len();
    let step = if part.chunks == 1 { keys } else { part.rows() };
    for start in (0..keys).step_by(step) {
        let rows = step.min(keys - start);
        let mut into = chunk_view(sum, part.keys.start + start, rows, part);
        let _ = into.g_add_(&grad.narrow(1, start as i64, rows as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference;
    use super::*;
    use crate::pattern::rule::Rule;

    /// Compared with masked attention over all keys, forward and backward.
    #[test]
    fn chunks_match_windowed_attention() {
        tch::manual_seed(5);
        for (seq, window, kv_heads) in [
            (700, [70, 33], 2),
            (641, [64, 0], 2),
            (520, [0, 90], 2),
            (600, [40, 40], 1),
            (512, [1, 1], 2),
        ] {
            assert!(parts(seq, window).len() <= 8);
            let shape = AttentionShape {
                heads: 2,
                kv_heads,
                d_head: 8,
                d_value: 4,
                ..AttentionShape::single_head(2, seq, seq)
            };
            let [left, right] = window;
            let settings = TiledSettings::from_rule(shape, Rule::Window { left, right });
            let random = |heads: usize, width: i64| {
                let size = [2, heads as i64, seq as i64, width];
                Tensor::randn(size, (Kind::Float, tch::Device::Cpu))
            };
            let tensors = [random(2, 8), random(kv_heads, 8), random(kv_heads, 4)];
            let d_context = random(2, 4);
            let [context, log_sum_exp] = forward(&tensors, window, &settings);
            let results = BackwardInputs {
                context: &context,
                log_sum_exp: &log_sum_exp,
                d_context: &d_context,
            };
            let grads = backward(&tensors, &results, window, &settings);

            let whole = Part {
                queries: 0..seq,
                chunks: 1,
                keys: 0..seq,
            };
            let dims = [2, 2, seq as i64, seq as i64];
            let args = EfficientArgs {
                mask: Mask::None,
                bias: Some(band_bias(&whole, window, &tensors[0]).expand(dims, false)),
                may_mask_rows: false,
                scale: settings.scale,
                dropout: None,
            };
            let repeated = repeat_heads(&tensors, &shape).map(|tensor| tensor.transpose(1, 2));
            let [query, key, value] = repeated.each_ref();
            let [expected, expected_lse] = reference::forward([query, key, value], &args);
            let assert_close = |actual: &Tensor, expected: &Tensor, name: &str| {
                assert_eq!(actual.size(), expected.size(), "{name}");
                let error = (actual - expected).abs().max().double_value(&[]);
                assert!(error < 2e-5, "{name}: error {error}, {seq} {window:?}");
            };
            assert_close(&context, &expected.transpose(1, 2), "context");
            assert_close(&log_sum_exp.squeeze_dim(3), &expected_lse, "log-sum-exp");
            let d_context = d_context.transpose(1, 2);
            let ([d_query, d_key, d_value], _) = reference::backward(
                [query, key, value],
                [&expected, &expected_lse, &d_context],
                &args,
                false,
            );
            let sum_group = |grad: &Tensor, width: i64| {
                let group = 2 / kv_heads as i64;
                grad.transpose(1, 2)
                    .reshape([2, kv_heads as i64, group, seq as i64, width])
                    .sum_dim_intlist(2, false, None::<Kind>)
            };
            assert_close(&grads[0], &d_query.transpose(1, 2), "d_query");
            assert_close(&grads[1], &sum_group(&d_key, 8), "d_key");
            assert_close(&grads[2], &sum_group(&d_value, 4), "d_value");
        }
    }
}
