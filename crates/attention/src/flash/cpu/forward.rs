//! The forward pass of one tile of queries over all its visible keys.

use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, matmul};

use super::additive::{additive_scores, query_powers, select_form};
use super::call::{Call, STATS, gather_rows};
use super::finite::{add_non_finite_by_key, finite_copy};
use super::gaussian::Positions;
use super::hard::{NO_KEY, Selection, add_gumbel_noise};
use super::kernel::{
    KEYS, QUERIES, columns_of, columns_to_rows, multiply, online_softmax, rows_of, rows_to_columns,
    scale_columns, sigmoid_weights,
};
use super::score::{finish_scores, write_dropout_factors};
use crate::analysis::weights::HardSelection;
use crate::flash::call::Program;
use zoo_kernels::cpu::scratch::Scratch;

dispatch! {
    /// One tile of queries.
    pub(super) unsafe fn forward(
        call: &Call<'_>,
        head: usize,
        row: usize,
        start: Start,
        context: &mut [f32],
        stats: &mut [f32],
    ) by forward_tile;
}

/// What the context and the statistics contain at the start.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// Nothing.
    Empty,
    /// The result for other keys, with which this one is merged.
    Partial,
}

/// Context and [statistics](crate::flash::call::Saved::stats) of the queries of a row of tiles.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn forward_tile<S: Simd>(
    call: &Call<'_>,
    head: usize,
    row: usize,
    start: Start,
    context: &mut [f32],
    stats: &mut [f32],
) {
    let [_, heads, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (example, query_head) = (head / heads, head % heads);
    let kv_head = example * call.shape.kv_heads + query_head / call.shape.group();
    let key = call.key.head(kv_head, seq_k * d_head);
    let value = call.value.head(kv_head, seq_k * d_value);
    let queries = call.queries([example, query_head], row);
    let positions = call.positions(head * seq_q, &queries);
    let is_additive = call.program == Program::Additive;

    let factor_keys = if call.has_factors() { KEYS } else { 0 };
    let [powers, key_powers] = if is_additive {
        [d_head * QUERIES, KEYS * d_head]
    } else {
        [0, 0]
    };
    // Gathered rows of queries, keys and values.
    let [gathered_len, query_rows] = match call.gather {
        Some(_) => [KEYS * d_head.max(d_value), d_head],
        None => [0, 0],
    };
    let rows = [d_head, KEYS, d_value, 1, 1, factor_keys, query_rows].map(|rows| rows * QUERIES);
    let [
        query_len,
        score_len,
        context_len,
        max_len,
        sum_len,
        factor_len,
        query_rows,
    ] = rows;
    let mut scratch = Scratch::take();
    let [
        query_t,
        scores,
        context_t,
        max,
        sum,
        factors,
        query_rows,
        gathered,
        powers,
        key_powers,
    ] = scratch.split([
        query_len,
        score_len,
        context_len,
        max_len,
        sum_len,
        factor_len,
        query_rows,
        gathered_len,
        powers,
        key_powers.next_multiple_of(S::LANES),
    ]);
    let query = &call.query[head * seq_q * d_head..][..seq_q * d_head];
    let query = gather_rows(query, d_head, &queries, query_rows);
    // SAFETY: the caller enabled the instructions.
    let powers = unsafe {
        rows_to_columns::<S>(query, d_head, query_t);
        if is_additive {
            query_powers::<S>(query_t, powers)
        } else {
            scale_columns::<S>(query_t, &[call.query_scale(); QUERIES]);
            &[]
        }
    };
    context_t.fill(0.0);
    // Below every score, and finite: infinity minus infinity would be NaN.
    max.fill(f32::MIN);
    sum.fill(0.0);
    if call.program == Program::Sigmoid {
        // Not normalised.
        max.fill(0.0);
        sum.fill(1.0);
    }
    if start == Start::Partial {
        for (i, row) in stats.chunks_exact(STATS).enumerate() {
            [max[i], sum[i]] = [row[0], row[1]];
        }
        let sum: &[f32; QUERIES] = sum.first_chunk().expect("a row of queries");
        // SAFETY: the caller enabled the instructions.
        unsafe {
            rows_to_columns::<S>(context, d_value, context_t);
            scale_columns::<S>(context_t, sum);
        }
    }
    let mut selection = Selection::new();

    for tile in call.tiles([example, query_head], row) {
        let exclude = |it: &Positions| it.exclude(&tile.keys.range());
        if positions.as_ref().is_some_and(exclude) {
            continue;
        }
        let count = tile.keys.len();
        let key_rows = gather_rows(key, d_head, &tile.keys, gathered);
        // SAFETY: the caller enabled the instructions; the buffers have the sizes above.
        unsafe {
            if is_additive {
                let (form, query, key) =
                    select_form::<S>([&*query_t, powers], key_rows, key_powers);
                let vector = call.vector(query_head);
                additive_scores::<S>(form, query, key, vector, call.score_scale(), scores);
            } else {
                matmul::<S, false>(
                    [count, d_head, QUERIES],
                    rows_of(key_rows.as_ptr(), d_head),
                    (query_t.as_ptr(), QUERIES),
                    (scores.as_mut_ptr(), QUERIES),
                    Accumulate::Overwrite,
                );
            }
            if !(tile.is_unmasked() && call.is_plain()) {
                finish_scores::<S, _>(call, &tile, scores, &mut []);
            }
            if let Program::Hard(hard) = call.program {
                if let HardSelection::Sampled { seed, .. } = hard {
                    add_gumbel_noise(seed, call.first_head, &tile, scores);
                }
                selection.update::<S>(&tile, scores);
                match hard {
                    HardSelection::Sampled { temperature, .. } if call.is_tracked => {
                        let factor = [1.0 / temperature as f32; QUERIES];
                        scale_columns::<S>(&mut scores[..count * QUERIES], &factor);
                    }
                    // No soft weights.
                    HardSelection::Best | HardSelection::Sampled { .. } => continue,
                }
            }
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, &tile, factors);
            }
            if let Some(positions) = &positions {
                let keys = tile.keys.range();
                positions.apply::<S>(&keys, scores, factors, call.dropout.is_some());
            }
            if call.program == Program::Sigmoid {
                sigmoid_weights::<S>(count, scores.as_mut_ptr());
            } else {
                online_softmax::<S>(
                    count,
                    scores.as_mut_ptr(),
                    max.as_mut_ptr(),
                    sum.as_mut_ptr(),
                    context_t.as_mut_ptr(),
                    d_value,
                );
            }
            if call.has_factors() {
                multiply::<S>(count, scores.as_mut_ptr(), factors.as_ptr());
            }
            let rows = gather_rows(value, d_value, &tile.keys, gathered);
            let finite = finite_copy(rows, call.may_mask(tile.is_unmasked()));
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
    let stats_width = call.stats_width();
    for (i, row) in stats.chunks_exact_mut(stats_width).enumerate() {
        row[..STATS].copy_from_slice(&[max[i], sum[i]]);
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
    if matches!(call.program, Program::Hard(_)) {
        select_values(
            call,
            [example, query_head],
            queries.range(),
            &selection,
            value,
            context,
            stats,
        );
    }
}

/// Writes the selected keys, and what `context` contains, the context of the soft weights, to the
/// statistics; then replaces it by the selected values.
fn select_values(
    call: &Call<'_>,
    [example, head]: [usize; 2],
    queries: Range<usize>,
    selection: &Selection,
    value: &[f32],
    context: &mut [f32],
    stats: &mut [f32],
) {
    let d_value = call.shape.d_value;
    let rows = context
        .chunks_exact_mut(d_value)
        .zip(stats.chunks_exact_mut(call.stats_width()));
    for (i, (context, stats)) in rows.enumerate() {
        let key = selection.key(i);
        stats[STATS] = key;
        // Empty if the key is not sampled.
        let soft = &mut stats[STATS + 1..];
        soft.copy_from_slice(&context[..soft.len()]);
        if key == NO_KEY {
            context.fill(0.0);
        } else if key.is_nan() {
            context.fill(f32::NAN);
        } else {
            let key = key as usize;
            let query = [example, head, queries.start + i];
            let factor = call.dropout.map_or(1.0, |it| it.factor_at(query, key));
            for (into, x) in context.iter_mut().zip(&value[key * d_value..]) {
                *into = factor * x;
            }
        }
    }
}
