//! The gradients of some queries, and what they add to those of their keys and values.

use std::ops::Range;

use super::kernel::{Into, KEYS, QUERIES, Scalars, matmul, softmax_backward};
use super::scratch::Scratch;
use super::simd::Simd;
use super::{Call, Out, Upstream, add, conceal, tiles, turn};
use crate::AttentionShape;
use crate::tiled::sight::Sight;

/// Some queries of the heads that share a key and value head, backward. `queries`
/// counts over all these heads.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn backward_part<S: Simd>(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    kv_head: usize,
    queries: Range<usize>,
    out: Out<'_>,
) {
    let AttentionShape {
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = call.shape;
    let group = call.shape.group();
    let example = kv_head / kv_heads;
    let key = &call.key[kv_head * seq_k * d_head..][..seq_k * d_head];
    let value = &call.value[kv_head * seq_k * d_value..][..seq_k * d_value];
    // Rows as wide as registers: gradients are added to a copy where they are not.
    let (wide_head, wide_value) = (
        d_head.next_multiple_of(S::LANES),
        d_value.next_multiple_of(S::LANES),
    );
    let padded = [wide_head != d_head, wide_value != d_value];
    let room = |padded: bool, rows: usize, width: usize| if padded { rows * width } else { 0 };

    let sizes = [
        d_head * QUERIES,
        d_value * QUERIES,
        KEYS * QUERIES,
        KEYS * QUERIES,
        d_head * QUERIES,
        QUERIES,
        QUERIES,
        room(padded[0], QUERIES, wide_head),
        room(padded[1], QUERIES, wide_value),
        room(padded[0], seq_k, wide_head),
        room(padded[1], seq_k, wide_value),
    ];
    let mut scratch = Scratch::take();
    let [
        turned,
        d_turned,
        scores,
        d_scores,
        d_query_turned,
        lse,
        mean,
        wide_queries,
        wide_d_context,
        wide_d_key,
        wide_d_value,
    ] = scratch.split(sizes);
    wide_d_key.fill(0.0);
    wide_d_value.fill(0.0);
    let d_key = if padded[0] {
        wide_d_key.as_mut_ptr()
    } else {
        out.d_key.as_mut_ptr()
    };
    let d_value_sum = if padded[1] {
        wide_d_value.as_mut_ptr()
    } else {
        out.d_value.as_mut_ptr()
    };

    let mut first = queries.start;
    while first < queries.end {
        // A tile never reaches over from one head into the next.
        let own = kv_head % kv_heads * group + first / seq_q;
        let in_head = first % seq_q;
        let count = QUERIES.min(seq_q - in_head).min(queries.end - first);
        let tile = in_head..in_head + count;
        let row = kv_head * group * seq_q + first;

        let query = &call.query[row * d_head..][..count * d_head];
        let d_context = &upstream.d_context[row * d_value..][..count * d_value];
        let context = &upstream.context[row * d_value..][..count * d_value];
        turn(query, d_head, call.scale * std::f32::consts::LOG2_E, turned);
        turn(d_context, d_value, 1.0, d_turned);
        lse.fill(f32::INFINITY);
        mean.fill(0.0);
        for i in 0..count {
            let sum = upstream.log_sum_exp[row + i] * std::f32::consts::LOG2_E;
            // A query that sees nothing weighs nothing: 2^(s - infinity).
            lse[i] = if sum == f32::NEG_INFINITY {
                f32::INFINITY
            } else {
                sum
            };
            let range = i * d_value..(i + 1) * d_value;
            // In the order of the matmul that it is taken off from: where a query
            // sees one key alone, the difference is then zero and not a rounding.
            let products = context[range.clone()].iter().zip(&d_context[range]);
            let product = products.fold(0.0, |sum, (o, d)| S::fma_one(*o, *d, sum));
            let d_lse = upstream.d_log_sum_exp.map_or(0.0, |d_lse| d_lse[row + i]);
            mean[i] = product - d_lse;
        }
        let query_rows = widen(query, d_head, wide_queries, wide_head);
        let d_context_rows = widen(d_context, d_value, wide_d_context, wide_value);
        d_query_turned.fill(0.0);

        for keys in tiles(seq_k, KEYS) {
            let sight = call.sights.tile([example, own], tile.clone(), keys.clone());
            if sight == Sight::Nothing {
                continue;
            }
            let seen = keys.len();
            // SAFETY: the caller enabled the instructions; sizes are those above.
            unsafe {
                let key = key.as_ptr().add(keys.start * d_head);
                let value = value.as_ptr().add(keys.start * d_value);
                let by_key = |start, row_stride| Scalars {
                    start,
                    row_stride,
                    column_stride: 1,
                };
                matmul::<S>(
                    [seen, d_head, QUERIES],
                    by_key(key, d_head),
                    (turned.as_ptr(), QUERIES),
                    (scores.as_mut_ptr(), QUERIES),
                    Into::Fresh,
                );
                if sight == Sight::Part {
                    conceal::<S>(call.sights, [example, own], &tile, &keys, scores);
                }
                matmul::<S>(
                    [seen, d_value, QUERIES],
                    by_key(value, d_value),
                    (d_turned.as_ptr(), QUERIES),
                    (d_scores.as_mut_ptr(), QUERIES),
                    Into::Fresh,
                );
                softmax_backward::<S>(
                    seen,
                    scores.as_mut_ptr(),
                    d_scores.as_mut_ptr(),
                    lse.as_ptr(),
                    mean.as_ptr(),
                    call.scale,
                );
                // dV += P · dO, dK += dS · Q, over the queries of the tile.
                matmul::<S>(
                    [seen, count, wide_value],
                    by_key(scores.as_ptr(), QUERIES),
                    (d_context_rows, wide_value),
                    (d_value_sum.add(keys.start * wide_value), wide_value),
                    Into::Sum,
                );
                matmul::<S>(
                    [seen, count, wide_head],
                    by_key(d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key.add(keys.start * wide_head), wide_head),
                    Into::Sum,
                );
                // dQ += dSᵀ · K, turned like the queries.
                let columns = Scalars {
                    start: key,
                    row_stride: 1,
                    column_stride: d_head,
                };
                matmul::<S>(
                    [d_head, seen, QUERIES],
                    columns,
                    (d_scores.as_ptr(), QUERIES),
                    (d_query_turned.as_mut_ptr(), QUERIES),
                    Into::Sum,
                );
            }
        }
        let start = (first - queries.start) * d_head;
        let d_query = &mut out.d_query[start..][..count * d_head];
        for (i, row) in d_query.chunks_exact_mut(d_head).enumerate() {
            for (x, into) in row.iter_mut().enumerate() {
                *into = d_query_turned[x * QUERIES + i];
            }
        }
        first += count;
    }

    if padded[0] {
        narrow(wide_d_key, wide_head, out.d_key, d_head);
    }
    if padded[1] {
        narrow(wide_d_value, wide_value, out.d_value, d_value);
    }
}

/// Rows as they are if there is no room to copy them to, else copied, zeros after each.
fn widen(rows: &[f32], width: usize, room: &mut [f32], wide: usize) -> *const f32 {
    if room.is_empty() {
        return rows.as_ptr();
    }
    for (row, into) in rows.chunks_exact(width).zip(room.chunks_exact_mut(wide)) {
        into[..width].copy_from_slice(row);
        into[width..].fill(0.0);
    }
    room.as_ptr()
}

/// Adds the first numbers of each wide row.
fn narrow(wide_rows: &[f32], wide: usize, rows: &mut [f32], width: usize) {
    for (from, row) in wide_rows
        .chunks_exact(wide)
        .zip(rows.chunks_exact_mut(width))
    {
        add(row, &from[..width]);
    }
}
