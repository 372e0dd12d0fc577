//! One tile of queries through all the keys it may see.

use std::ops::Range;

use super::Call;
use super::kernel::{
    Into, KEYS, QUERIES, Scalars, matmul, multiply, online_softmax, scale_columns, turn, turn_back,
};
use super::score::{Tile, finish_scores, write_factors};
use super::scratch::Scratch;
use super::simd::Simd;
use crate::AttentionShape;

/// One tile of queries, forward.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn forward_tile<S: Simd>(
    call: &Call<'_>,
    head: usize,
    queries: Range<usize>,
    context: &mut [f32],
    log_sum_exp: &mut [f32],
) {
    let AttentionShape {
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = call.shape;
    let (example, own) = (head / heads, head % heads);
    let kv_head = example * kv_heads + own / call.shape.group();
    let key = call.key.head(kv_head, seq_k * d_head);
    let value = call.value.head(kv_head, seq_k * d_value);
    let query = &call.query[(head * seq_q + queries.start) * d_head..][..queries.len() * d_head];

    let of_dropout = if call.dropout.is_some() { KEYS } else { 0 };
    let sizes = [
        d_head * QUERIES,
        KEYS * QUERIES,
        d_value * QUERIES,
        QUERIES,
        QUERIES,
        of_dropout * QUERIES,
    ];
    let mut scratch = Scratch::take();
    let [turned, scores, sums, largest, sum, factors] = scratch.split(sizes);
    // SAFETY: the caller enabled the instructions.
    unsafe {
        turn::<S>(query, d_head, turned);
        scale_columns::<S>(turned, &[call.scale * std::f32::consts::LOG2_E; QUERIES]);
    }
    sums.fill(0.0);
    // Below every score, and finite: nothing is ever infinity minus infinity.
    largest.fill(f32::MIN);
    sum.fill(0.0);

    for (keys, is_whole) in call.plan.tiles(example, queries.start / QUERIES) {
        let count = keys.len();
        let first = keys.start;
        let tile = Tile {
            example,
            head: own,
            queries: queries.clone(),
            keys,
            is_whole,
        };
        // SAFETY: the caller enabled the instructions; sizes are those above.
        unsafe {
            let rows = Scalars {
                start: key.as_ptr().add(first * d_head),
                row_stride: d_head,
                column_stride: 1,
            };
            matmul::<S>(
                [count, d_head, QUERIES],
                rows,
                (turned.as_ptr(), QUERIES),
                (scores.as_mut_ptr(), QUERIES),
                Into::Fresh,
            );
            if !(is_whole && call.is_plain()) {
                finish_scores::<S>(call, &tile, scores, &mut []);
            }
            online_softmax::<S>(
                count,
                scores.as_mut_ptr(),
                largest.as_mut_ptr(),
                sum.as_mut_ptr(),
                sums.as_mut_ptr(),
                d_value,
            );
            if let Some(dropout) = &call.dropout {
                write_factors(dropout, &tile, factors);
                multiply::<S>(count, scores.as_mut_ptr(), factors.as_ptr());
            }
            let columns = Scalars {
                start: value.as_ptr().add(first * d_value),
                row_stride: 1,
                column_stride: d_value,
            };
            matmul::<S>(
                [d_value, count, QUERIES],
                columns,
                (scores.as_ptr(), QUERIES),
                (sums.as_mut_ptr(), QUERIES),
                Into::Sum,
            );
        }
    }

    let mut shares = [0.0; QUERIES];
    for (i, into) in log_sum_exp.iter_mut().enumerate() {
        // A query that saw nothing has a sum of zero, and zeros for its context.
        if sum[i] == 0.0 {
            *into = f32::NEG_INFINITY;
        } else {
            shares[i] = 1.0 / sum[i];
            // Rounded once: every weight of the backward pass follows from it.
            let exponent = f64::from(largest[i]) + f64::from(sum[i]).log2();
            *into = (exponent * std::f64::consts::LN_2) as f32;
        }
    }
    // SAFETY: the caller enabled the instructions.
    unsafe {
        scale_columns::<S>(sums, &shares);
        turn_back::<S>(sums, context, d_value);
    }
}
