//! The backward pass of some query tiles, which accumulates the gradients of keys and values.

use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, matmul};

use super::additive::{AdditiveGrads, MAX_LANES};
use super::call::{BackwardInputs, Call, GradSlices};
use super::finite::{add_non_finite_by_key, add_non_finite_by_query, finite_copy};
use super::hard::NO_KEY;
use super::kernel::{KEYS, QUERIES, columns_of, columns_to_rows, rows_of};
use super::tile_gradients::{GradTarget, TileBuffers};
use crate::cpu::scratch::Scratch;
use crate::flash::call::Program;

dispatch! {
    /// The gradients of some rows of tiles.
    pub(super) unsafe fn backward(
        call: &Call<'_>,
        saved: &BackwardInputs<'_>,
        kv_head: usize,
        rows: Range<usize>,
        grads: GradSlices<'_>,
    ) by backward_part;
}

dispatch! {
    /// The bias gradient of a row of tiles.
    pub(super) unsafe fn backward_bias(
        call: &Call<'_>,
        saved: &BackwardInputs<'_>,
        head: [usize; 2],
        row: usize,
        strides: [usize; 2],
        d_bias: &mut [f32],
    ) by backward_bias_tile;
}

/// `rows` counts tiles of queries over all heads that share the key and value head.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn backward_part<S: Simd>(
    call: &Call<'_>,
    saved: &BackwardInputs<'_>,
    kv_head: usize,
    rows: Range<usize>,
    grads: GradSlices<'_>,
) {
    let [_, heads, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (kv_heads, group) = (call.shape.kv_heads, call.shape.group());
    let example = kv_head / kv_heads;
    // Rows are padded to whole registers: if they are not, gradients go to a padded copy.
    let (wide_head, wide_value) = (
        d_head.next_multiple_of(S::LANES),
        d_value.next_multiple_of(S::LANES),
    );
    let (pads_head, pads_value) = (wide_head != d_head, wide_value != d_value);
    let len = |is_padded: bool, rows: usize, width: usize| if is_padded { rows * width } else { 0 };

    let is_additive = call.program == Program::Additive;
    let sizes = [
        d_head * QUERIES,
        len(is_additive, d_head, MAX_LANES),
        len(is_additive, KEYS, S::LANES),
        len(pads_head, QUERIES, wide_head),
        len(pads_value, QUERIES, wide_value),
        len(pads_head, seq_k, wide_head),
        len(pads_value, seq_k, wide_value),
    ];
    let (mut scratch, mut tile_scratch) = (Scratch::take(), Scratch::take());
    let [
        d_query_t,
        d_vector,
        by_key,
        wide_queries,
        wide_d_context,
        wide_d_key,
        wide_d_value,
    ] = scratch.split(sizes);
    let mut buffers = TileBuffers::new(call, &mut tile_scratch);
    let d_key = if pads_head {
        &mut *wide_d_key
    } else {
        &mut *grads.d_key
    };
    let d_value_sum = if pads_value {
        &mut *wide_d_value
    } else {
        &mut *grads.d_value
    };
    // The first query tile that attends to a key tile overwrites its gradients, later ones add to
    // them. No zero-initialisation is needed, and new memory is not read before it is written,
    // which would cause two page faults.
    let mut is_written = vec![false; seq_k.div_ceil(KEYS)];
    let is_hard = matches!(call.program, Program::Hard(_));
    if is_hard {
        // The gradient of the context goes to the selected values only.
        d_value_sum.fill(0.0);
    }

    let key = call.key.head(kv_head, seq_k * d_head);
    let rows_per_head = call.plan.rows();
    let mut written = 0;
    for row in rows {
        let query_head = kv_head % kv_heads * group + row / rows_per_head;
        let row = row % rows_per_head;
        let queries = call.plan.queries(row);
        let count = queries.len();
        let first = (example * heads + query_head) * seq_q + queries.start;
        let query = &call.query[first * d_head..][..count * d_head];
        let d_context = &saved.d_context[first * d_value..][..count * d_value];
        // SAFETY: the caller enabled the instructions.
        unsafe { buffers.load_queries::<S>(call, saved, first, count) };
        // Non-finite elements of a query must not reach the gradients of masked keys.
        let (finite_query, finite_d_context) =
            (finite_copy(query, true), finite_copy(d_context, true));
        let query_rows = pad_rows(
            finite_query.as_deref().unwrap_or(query),
            d_head,
            wide_queries,
            wide_head,
        );
        let d_context_rows = pad_rows(
            finite_d_context.as_deref().unwrap_or(d_context),
            d_value,
            wide_d_context,
            wide_value,
        );
        d_query_t.fill(0.0);
        d_vector.fill(0.0);
        if is_hard {
            let selected = &saved.selected[first..][..count];
            for (i, (key, d_context)) in selected
                .iter()
                .zip(d_context.chunks_exact(d_value))
                .enumerate()
            {
                let query = [example, query_head, queries.start + i];
                add_to_selected(call, query, *key, d_context, d_value_sum, wide_value);
            }
        }

        for tile in call.tiles([example, query_head], row) {
            if buffers.excludes(call, &tile.keys) {
                continue;
            }
            let (key_count, first_key) = (tile.keys.len(), tile.keys.start);
            let is_written = &mut is_written[first_key / KEYS];
            let mode = if std::mem::replace(is_written, true) {
                Accumulate::Add
            } else {
                Accumulate::Overwrite
            };
            // SAFETY: the caller enabled the instructions; the buffers have the sizes above.
            unsafe {
                buffers.compute_tile::<S>(call, &tile, GradTarget::DotProducts);
                // dV += P · dO, dK += dS · Q, over the queries of the tile.
                if !is_hard {
                    matmul::<S, false>(
                        [key_count, count, wide_value],
                        rows_of(buffers.weights.as_ptr(), QUERIES),
                        (d_context_rows, wide_value),
                        (
                            d_value_sum.as_mut_ptr().add(first_key * wide_value),
                            wide_value,
                        ),
                        mode,
                    );
                    if finite_d_context.is_some() {
                        let sums =
                            &mut d_value_sum[first_key * wide_value..][..key_count * wide_value];
                        add_non_finite_by_query(
                            buffers.weights,
                            d_context,
                            d_value,
                            (sums, wide_value),
                        );
                    }
                }
                let key_rows = &key[first_key * d_head..][..key_count * d_head];
                if is_additive {
                    let d_key = &mut d_key[first_key * wide_head..][..key_count * wide_head];
                    if mode == Accumulate::Overwrite {
                        d_key.fill(0.0);
                    }
                    let grads = AdditiveGrads {
                        d_query_t,
                        d_key: (d_key, wide_head),
                        d_vector,
                        by_key,
                    };
                    buffers.additive_backward::<S>(key_rows, call.vector(query_head), grads);
                    continue;
                }
                matmul::<S, false>(
                    [key_count, count, wide_head],
                    rows_of(buffers.d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key.as_mut_ptr().add(first_key * wide_head), wide_head),
                    mode,
                );
                // dQ += dSᵀ · K, transposed like the queries.
                let finite_key = finite_copy(key_rows, call.may_mask(tile.is_unmasked));
                let finite_rows = finite_key.as_deref().unwrap_or(key_rows);
                matmul::<S, false>(
                    [d_head, key_count, QUERIES],
                    columns_of(finite_rows.as_ptr(), d_head),
                    (buffers.d_scores.as_ptr(), QUERIES),
                    (d_query_t.as_mut_ptr(), QUERIES),
                    Accumulate::Add,
                );
                if finite_key.is_some() {
                    add_non_finite_by_key(buffers.d_scores, key_rows, d_head, d_query_t);
                }
                if finite_query.is_some() {
                    let sums = &mut d_key[first_key * wide_head..][..key_count * wide_head];
                    add_non_finite_by_query(buffers.d_scores, query, d_head, (sums, wide_head));
                }
            }
        }
        let d_query = &mut grads.d_query[written * d_head..][..count * d_head];
        // SAFETY: the caller enabled the instructions.
        unsafe { columns_to_rows::<S>(d_query_t, d_query, d_head) };
        match call.program {
            Program::Additive => {
                let head = query_head % group;
                let into = &mut grads.d_parameter[head * d_head..][..d_head];
                for (into, lanes) in into.iter_mut().zip(d_vector.chunks_exact(S::LANES)) {
                    *into += lanes.iter().sum::<f32>();
                }
            }
            Program::Gaussian { .. } => {
                let columns = call.position_columns();
                let into = &mut grads.d_parameter[written * columns..][..count * columns];
                for (row, d) in into.chunks_exact_mut(columns).zip(&buffers.d_positions) {
                    row[0] = *d;
                }
            }
            Program::Softmax | Program::Sigmoid | Program::Hard(_) => {}
        }
        written += count;
    }
    // Keys that are masked for all of these queries.
    for (tile, _) in is_written.iter().enumerate().filter(|(_, is)| !**is) {
        let keys = tile * KEYS..seq_k.min((tile + 1) * KEYS);
        d_key[keys.start * wide_head..keys.end * wide_head].fill(0.0);
        if !is_hard {
            d_value_sum[keys.start * wide_value..keys.end * wide_value].fill(0.0);
        }
    }

    if pads_head {
        unpad_rows(wide_d_key, wide_head, grads.d_key, d_head);
    }
    if pads_value {
        unpad_rows(wide_d_value, wide_value, grads.d_value, d_value);
    }
}

/// Adds the contribution of one query tile of one head. A stride of zero in `strides` (query, key)
/// means that `d_bias` is broadcast in that dimension.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn backward_bias_tile<S: Simd>(
    call: &Call<'_>,
    saved: &BackwardInputs<'_>,
    [example, head]: [usize; 2],
    row: usize,
    strides: [usize; 2],
    d_bias: &mut [f32],
) {
    let queries = call.plan.queries(row);
    let first = (example * call.shape.heads + head) * call.shape.seq_q + queries.start;
    let mut scratch = Scratch::take();
    let mut buffers = TileBuffers::new(call, &mut scratch);
    // SAFETY: the caller enabled the instructions.
    unsafe { buffers.load_queries::<S>(call, saved, first, queries.len()) };
    for tile in call.tiles([example, head], row) {
        if buffers.excludes(call, &tile.keys) {
            continue;
        }
        // SAFETY: the caller enabled the instructions.
        unsafe { buffers.compute_tile::<S>(call, &tile, GradTarget::Scores) };
        for (column, key) in buffers.d_scores.chunks_exact(QUERIES).zip(tile.keys) {
            for (query, d_score) in column[..queries.len()].iter().enumerate() {
                d_bias[query * strides[0] + key * strides[1]] += d_score;
            }
        }
    }
}

/// Adds the gradient of a query's context to that of the value it selected.
fn add_to_selected(
    call: &Call<'_>,
    query: [usize; 3],
    key: f32,
    d_context: &[f32],
    d_value: &mut [f32],
    stride: usize,
) {
    if key == NO_KEY {
        return;
    }
    if key.is_nan() {
        // As the weights of all keys are NaN, so are the gradients of all values.
        d_value.fill(f32::NAN);
        return;
    }
    let factor = call
        .dropout
        .map_or(1.0, |it| it.factor_at(query, key as usize));
    let into = &mut d_value[key as usize * stride..];
    for (into, d) in into.iter_mut().zip(d_context) {
        *into += factor * d;
    }
}

/// Copies rows to a buffer and pads them with zeros, or returns the rows if the buffer is empty.
fn pad_rows(rows: &[f32], width: usize, buffer: &mut [f32], wide: usize) -> *const f32 {
    if buffer.is_empty() {
        return rows.as_ptr();
    }
    for (row, into) in rows.chunks_exact(width).zip(buffer.chunks_exact_mut(wide)) {
        into[..width].copy_from_slice(row);
        into[width..].fill(0.0);
    }
    buffer.as_ptr()
}

fn unpad_rows(wide_rows: &[f32], wide: usize, rows: &mut [f32], width: usize) {
    for (from, row) in wide_rows
        .chunks_exact(wide)
        .zip(rows.chunks_exact_mut(width))
    {
        row.copy_from_slice(&from[..width]);
    }
}
