//! One tile of queries through all the keys it may see.

use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, Scalars, matmul};

use super::call::{Call, Tile};
use super::finite::{add_non_finite_by_key, finite_copy};
use super::kernel::{KEYS, QUERIES, multiply, online_softmax, scale_columns, turn, turn_back};
use super::score::{finish_scores, write_factors};
use super::scratch::Scratch;

dispatch! {
    /// A tile of queries through all keys.
    pub(super) unsafe fn forward(
        call: &Call<'_>,
        head: usize,
        queries: Range<usize>,
        context: &mut [f32],
        stats: &mut [f32],
    ) by forward_tile;
}

/// One tile of queries, forward. `stats` gets the maximum and the sum of each row.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn forward_tile<S: Simd>(
    call: &Call<'_>,
    head: usize,
    queries: Range<usize>,
    context: &mut [f32],
    stats: &mut [f32],
) {
    let [_, heads, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (example, own) = (head / heads, head % heads);
    let kv_head = example * call.shape.kv_heads + own / call.shape.group();
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
            matmul::<S, false>(
                [count, d_head, QUERIES],
                rows,
                (turned.as_ptr(), QUERIES),
                (scores.as_mut_ptr(), QUERIES),
                Accumulate::Overwrite,
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
            let rows = &value[first * d_value..][..count * d_value];
            let finite = if call.may_hide(&tile) {
                finite_copy(rows)
            } else {
                None
            };
            let columns = Scalars {
                start: finite.as_deref().unwrap_or(rows).as_ptr(),
                row_stride: 1,
                column_stride: d_value,
            };
            matmul::<S, false>(
                [d_value, count, QUERIES],
                columns,
                (scores.as_ptr(), QUERIES),
                (sums.as_mut_ptr(), QUERIES),
                Accumulate::Add,
            );
            if finite.is_some() {
                add_non_finite_by_key(scores, rows, d_value, sums);
            }
        }
    }

    let mut shares = [0.0; QUERIES];
    for (i, row) in stats.as_chunks_mut().0.iter_mut().enumerate() {
        *row = [largest[i], sum[i]];
        // A fully masked row has a sum of zero, and zeros for its context.
        if sum[i] != 0.0 {
            shares[i] = 1.0 / sum[i];
        }
    }
    // SAFETY: the caller enabled the instructions.
    unsafe {
        scale_columns::<S>(sums, &shares);
        turn_back::<S>(sums, context, d_value);
    }
}
