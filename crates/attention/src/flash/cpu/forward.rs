//! The forward pass of one tile of queries over all its visible keys.

use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, matmul};

use super::call::Call;
use super::finite::{add_non_finite_by_key, finite_copy};
use super::kernel::{
    KEYS, QUERIES, columns_of, columns_to_rows, multiply, online_softmax, rows_of, rows_to_columns,
    scale_columns,
};
use super::score::{finish_scores, write_dropout_factors};
use crate::cpu::scratch::Scratch;

dispatch! {
    /// One tile of queries.
    pub(super) unsafe fn forward(
        call: &Call<'_>,
        head: usize,
        queries: Range<usize>,
        context: &mut [f32],
        stats: &mut [f32],
    ) by forward_tile;
}

/// `stats` gets the maximum and the sum of each row.
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
    let (example, query_head) = (head / heads, head % heads);
    let kv_head = example * call.shape.kv_heads + query_head / call.shape.group();
    let key = call.key.head(kv_head, seq_k * d_head);
    let value = call.value.head(kv_head, seq_k * d_value);
    let query = &call.query[(head * seq_q + queries.start) * d_head..][..queries.len() * d_head];

    let dropout_keys = if call.dropout.is_some() { KEYS } else { 0 };
    let sizes = [d_head, KEYS, d_value, 1, 1, dropout_keys].map(|rows| rows * QUERIES);
    let mut scratch = Scratch::take();
    let [query_t, scores, context_t, max, sum, factors] = scratch.split(sizes);
    // SAFETY: the caller enabled the instructions.
    unsafe {
        rows_to_columns::<S>(query, d_head, query_t);
        scale_columns::<S>(query_t, &[call.scale * std::f32::consts::LOG2_E; QUERIES]);
    }
    context_t.fill(0.0);
    // Below every score, and finite: infinity minus infinity would be NaN.
    max.fill(f32::MIN);
    sum.fill(0.0);

    for tile in call.tiles([example, query_head], queries.start / QUERIES) {
        let (count, first) = (tile.keys.len(), tile.keys.start);
        // SAFETY: the caller enabled the instructions; the buffers have the sizes above.
        unsafe {
            matmul::<S, false>(
                [count, d_head, QUERIES],
                rows_of(key.as_ptr().add(first * d_head), d_head),
                (query_t.as_ptr(), QUERIES),
                (scores.as_mut_ptr(), QUERIES),
                Accumulate::Overwrite,
            );
            if !(tile.is_unmasked && call.is_plain()) {
                finish_scores::<S>(call, &tile, scores, &mut []);
            }
            online_softmax::<S>(
                count,
                scores.as_mut_ptr(),
                max.as_mut_ptr(),
                sum.as_mut_ptr(),
                context_t.as_mut_ptr(),
                d_value,
            );
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, &tile, factors);
                multiply::<S>(count, scores.as_mut_ptr(), factors.as_ptr());
            }
            let rows = &value[first * d_value..][..count * d_value];
            let finite = finite_copy(rows, call.may_mask(tile.is_unmasked));
            let finite_rows = finite.as_deref().unwrap_or(rows);
            matmul::<S, false>(
                [d_value, count, QUERIES],
                columns_of(finite_rows.as_ptr(), d_value),
                (scores.as_ptr(), QUERIES),
                (context_t.as_mut_ptr(), QUERIES),
                Accumulate::Add,
            );
            if finite.is_some() {
                add_non_finite_by_key(scores, rows, d_value, context_t);
            }
        }
    }

    let mut inverse = [0.0; QUERIES];
    for (i, row) in stats.as_chunks_mut().0.iter_mut().enumerate() {
        *row = [max[i], sum[i]];
        // A fully masked row has a sum of zero and a context of zeros.
        if sum[i] != 0.0 {
            inverse[i] = 1.0 / sum[i];
        }
    }
    // SAFETY: the caller enabled the instructions.
    unsafe {
        scale_columns::<S>(context_t, &inverse);
        columns_to_rows::<S>(context_t, context, d_value);
    }
}
