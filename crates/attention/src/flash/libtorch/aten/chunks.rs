//! A window as attention of chunks: each chunk of queries sees a stretch of keys, and within
//! it a band that is the same for every chunk.
//!
//! ```text
//! queries   |   chunk   |
//! keys   |left|  chunk  |right|
//! ```
//!
//! All chunks whose keys are all there are one call of the [kernel](super::efficient): their
//! stretches are views that overlap, and nothing is copied. Those at either end have fewer
//! keys, and are calls of their own.

use std::ops::Range;

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{Added, Results, laid_out};
use super::efficient::{Dims, LOWEST, in_groups_of_32, kernel_backward, kernel_forward, spread};
use crate::AttentionShape;
use crate::flash::call::TiledSettings;

/// Queries in a chunk: half as many as a window has keys, so that half of what is computed
/// again for each chunk is seen; in whole groups of 64, and not too few for the device.
fn chunk([left, right]: [usize; 2]) -> usize {
    ((left + right) / 2).next_multiple_of(64).clamp(64, 1024)
}

/// Whether a sequence is long enough to be cut up.
pub(super) fn pay(seq: usize, sides: [usize; 2]) -> bool {
    seq >= 2 * (chunk(sides) + sides[0] + sides[1])
}

/// Neighbouring chunks that are one call.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// All their queries.
    queries: Range<usize>,
    /// Of how many chunks.
    chunks: usize,
    /// The keys of the first.
    keys: Range<usize>,
}

impl Part {
    fn rows(&self) -> usize {
        self.queries.len() / self.chunks
    }
}

/// The parts of a sequence.
fn parts(seq: usize, [left, right]: [usize; 2]) -> Vec<Part> {
    let size = chunk([left, right]);
    let mut parts: Vec<Part> = Vec::new();
    for start in (0..seq).step_by(size) {
        let queries = start..seq.min(start + size);
        let keys = start.saturating_sub(left)..seq.min(start + size + right);
        let has_all = start >= left && start + size + right <= seq;
        match parts.last_mut() {
            Some(last) if has_all && last.keys.len() == left + size + right => {
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

/// The numbers of the chunks of a part: `[batch · heads, rows, chunks, d]`, from rows that lie
/// one after the other.
fn cut(tensor: &Tensor, first: usize, rows: usize, part: &Part) -> Tensor {
    let size = tensor.size();
    let (seq, width) = (size[2], size[3]);
    tensor.narrow(2, first as i64, rows as i64).as_strided(
        [size[0] * size[1], rows as i64, part.chunks as i64, width],
        [seq * width, width, part.rows() as i64 * width, 1],
        None,
    )
}

/// Zero where a query of a chunk sees a key, and the lowest elsewhere.
fn band(part: &Part, [left, right]: [usize; 2], like: &Tensor) -> Tensor {
    let (rows, keys) = (part.rows() as i64, part.keys.len() as i64);
    // The first key of the part, as seen from its first query.
    let first = part.keys.start as i64 - part.queries.start as i64;
    let of = |number: f64| Tensor::full([rows, keys], number, (like.kind(), like.device()));
    let never = of(LOWEST);
    // Seen from `-left` to `right`, counted from the query's own place: on a diagonal that
    // is so far from the corner.
    let later = never.triu(right as i64 - first + 1);
    let earlier = never.tril(-(left as i64) - first - 1);
    // Where a triangle was cut off there is zero.
    (later + earlier).reshape([1, 1, rows, keys])
}

/// One call of the kernel for a part.
fn added(part: &Part, sides: [usize; 2], like: &Tensor, batch: i64) -> Added {
    let dims = Dims {
        batch,
        heads: part.chunks as i64,
        seq_q: part.rows() as i64,
        seq_k: part.keys.len() as i64,
    };
    Added {
        mask: Mask::Nothing,
        bias: Some(spread(&band(part, sides, like), dims)),
        may_blind: false,
    }
}

/// Query, key and value row by row, each head with keys of its own.
fn rows_of(tensors: &[Tensor; 3], shape: &AttentionShape) -> [Tensor; 3] {
    let [query, key, value] = tensors;
    let own = |tensor: &Tensor| match shape.group() {
        1 => tensor.contiguous(),
        group => tensor.repeat_interleave_self_int(group as i64, 1, None),
    };
    [query.contiguous(), own(key), own(value)]
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    sides: [usize; 2],
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let shape = &settings.shape;
    let [query, key, value] = rows_of(tensors, shape);
    let [batch, heads] = [shape.batch, shape.heads].map(|size| size as i64);
    let mut contexts = Vec::new();
    let mut sums_of_exp = Vec::new();
    for part in parts(shape.seq_q, sides) {
        let added = added(&part, sides, &query, batch * heads);
        let [context, log_sum_exp] = kernel_forward(
            [
                &cut(&query, part.queries.start, part.rows(), &part),
                &cut(&key, part.keys.start, part.keys.len(), &part),
                &cut(&value, part.keys.start, part.keys.len(), &part),
            ],
            &added,
            settings.scale,
            None,
        );
        let places = [batch, heads, part.queries.len() as i64];
        let [a, b, c] = places;
        contexts.push(
            context
                .transpose(1, 2)
                .reshape([a, b, c, shape.d_value as i64]),
        );
        let log_sum_exp = log_sum_exp.narrow(2, 0, part.rows() as i64);
        sums_of_exp.push(log_sum_exp.reshape([a, b, c, 1]));
    }
    [Tensor::cat(&contexts, 2), Tensor::cat(&sums_of_exp, 2)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &Results<'_>,
    sides: [usize; 2],
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let shape = &settings.shape;
    let [query, key, value] = rows_of(tensors, shape);
    let [context, d_context] =
        [results.context, results.d_context].map(|tensor| laid_out(&tensor.contiguous()));
    let log_sum_exp = results.log_sum_exp.contiguous();
    let [batch, heads] = [shape.batch, shape.heads].map(|size| size as i64);
    let mut d_queries = Vec::new();
    let (mut d_key, mut d_value) = (key.zeros_like(), value.zeros_like());
    for part in parts(shape.seq_q, sides) {
        let added = added(&part, sides, &query, batch * heads);
        let of_queries = |tensor: &Tensor| cut(tensor, part.queries.start, part.rows(), &part);
        let of_keys = |tensor: &Tensor| cut(tensor, part.keys.start, part.keys.len(), &part);
        // `[batch · heads, chunks, rows]`
        let sums = of_queries(&log_sum_exp).squeeze_dim(3).transpose(1, 2);
        let sums = in_groups_of_32(&sums);
        let ([d_query, d_key_part, d_value_part], _) = kernel_backward(
            [&of_queries(&query), &of_keys(&key), &of_keys(&value)],
            [&of_queries(&context), &sums, &of_queries(&d_context)],
            &added,
            settings.scale,
            None,
            false,
        );
        let d_query = d_query.transpose(1, 2);
        d_queries.push(d_query.reshape([
            batch,
            heads,
            part.queries.len() as i64,
            shape.d_head as i64,
        ]));
        add_back(&mut d_key, &d_key_part, &part);
        add_back(&mut d_value, &d_value_part, &part);
    }
    let together = |gradient: Tensor, width: usize| match shape.group() {
        1 => gradient,
        group => {
            let size = [
                batch,
                shape.kv_heads as i64,
                group as i64,
                shape.seq_k as i64,
                width as i64,
            ];
            gradient
                .reshape(size)
                .sum_dim_intlist(2, false, None::<Kind>)
        }
    };
    [
        Tensor::cat(&d_queries, 2),
        together(d_key, shape.d_head),
        together(d_value, shape.d_value),
    ]
}

/// Adds what the chunks of a part have for their keys, `[batch · heads, keys, chunks, d]`. A
/// stretch is taken so many rows at a time as there are from chunk to chunk: what is written
/// at once then overlaps nowhere.
fn add_back(sum: &mut Tensor, gradient: &Tensor, part: &Part) {
    let keys = part.keys.len();
    let step = if part.chunks == 1 { keys } else { part.rows() };
    for start in (0..keys).step_by(step) {
        let rows = step.min(keys - start);
        let mut into = cut(sum, part.keys.start + start, rows, part);
        let _ = into.g_add_(&gradient.narrow(1, start as i64, rows as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::super::stand_in;
    use super::*;
    use crate::pattern::rule::Rule;

    /// Against attention of all keys under a mask of the window, forward and backward.
    #[test]
    fn chunks_are_the_window() {
        tch::manual_seed(5);
        for (seq, sides, kv_heads) in [
            (700, [70, 33], 2),
            (641, [64, 0], 2),
            (520, [0, 90], 2),
            (600, [40, 40], 1),
            (512, [1, 1], 2),
        ] {
            assert!(parts(seq, sides).len() <= 8);
            let shape = AttentionShape {
                heads: 2,
                kv_heads,
                d_head: 8,
                d_value: 4,
                ..AttentionShape::of_sequences(2, seq, seq)
            };
            let [left, right] = sides;
            let settings = TiledSettings::of_rule(shape, Rule::Window { left, right });
            let random = |heads: usize, width: i64| {
                let size = [2, heads as i64, seq as i64, width];
                Tensor::randn(size, (Kind::Float, tch::Device::Cpu))
            };
            let tensors = [random(2, 8), random(kv_heads, 8), random(kv_heads, 4)];
            let d_context = random(2, 4);
            let [context, log_sum_exp] = forward(&tensors, sides, &settings);
            let results = Results {
                context: &context,
                log_sum_exp: &log_sum_exp,
                d_context: &d_context,
            };
            let gradients = backward(&tensors, &results, sides, &settings);

            // All of it at once.
            let whole = Part {
                queries: 0..seq,
                chunks: 1,
                keys: 0..seq,
            };
            let places = [2, 2, seq as i64, seq as i64];
            let all = Added {
                mask: Mask::Nothing,
                bias: Some(band(&whole, sides, &tensors[0]).expand(places, false)),
                may_blind: false,
            };
            let own = rows_of(&tensors, &shape);
            let turned = own.each_ref().map(|tensor| tensor.transpose(1, 2));
            let [query, key, value] = turned.each_ref();
            let [expected, sums] = stand_in::forward([query, key, value], &all, 0.3);
            let close = |got: &Tensor, expected: &Tensor, what: &str| {
                assert_eq!(got.size(), expected.size(), "{what}");
                let off = (got - expected).abs().max().double_value(&[]);
                assert!(off < 2e-5, "{what} is {off} off, {seq} {sides:?}");
            };
            close(&context, &expected.transpose(1, 2), "context");
            close(&log_sum_exp.squeeze_dim(3), &sums, "log-sum-exp");
            let arrived = d_context.transpose(1, 2);
            let ([d_query, d_key, d_value], _) = stand_in::backward(
                [query, key, value],
                [&expected, &sums, &arrived],
                &all,
                0.3,
                false,
            );
            let shared = |gradient: &Tensor, width: i64| {
                let group = 2 / kv_heads as i64;
                gradient
                    .transpose(1, 2)
                    .reshape([2, kv_heads as i64, group, seq as i64, width])
                    .sum_dim_intlist(2, false, None::<Kind>)
            };
            close(&gradients[0], &d_query.transpose(1, 2), "d_query");
            close(&gradients[1], &shared(&d_key, 8), "d_key");
            close(&gradients[2], &shared(&d_value, 4), "d_value");
        }
    }
}
