//! The backward pass of some query tiles, which accumulates the gradients of keys and values.

use std::ops::Range;

use zoo_kernels::cpu::matmul::{Accumulate, matmul};
use zoo_kernels::cpu::{Simd, add, dispatch};

use super::additive::{AdditiveGrads, MAX_LANES};
use super::call::{BackwardInputs, Call, GradSlices};
use super::finite::{add_non_finite_by_key, add_non_finite_by_query, finite_copy};
use super::hard::NO_KEY;
use super::kernel::{KEYS, QUERIES, columns_of, columns_to_rows, rows_of};
use super::tile_gradients::{GradTarget, QueryRows, TileBuffers};
use crate::flash::call::Program;
use crate::pattern::gather::Indices;
use zoo_kernels::cpu::scratch::Scratch;

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
        strides: [isize; 2],
        d_bias: (isize, &mut [f32]),
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
    let is_gathered = call.gather.is_some();
    let [query_len, context_len, d_context_len] = QueryRows::buffer_lens(call);
    let sizes = [
        query_len,
        context_len,
        d_context_len,
        len(is_gathered, KEYS, wide_head),
        len(is_gathered, KEYS, wide_value),
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
        query_buffer,
        context_buffer,
        d_context_buffer,
        d_key_tile,
        d_value_tile,
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
    // them; gathered tiles overlap, so all of them add. No zero-initialisation is needed, and new memory is not read before it is written,
    // which would cause two page faults.
    let mut is_written = vec![is_gathered; seq_k.div_ceil(KEYS)];
    if is_gathered {
        grads.d_query.fill(0.0);
        d_key.fill(0.0);
        d_value_sum.fill(0.0);
    }
    let is_hard = matches!(call.program, Program::Hard(_));
    if is_hard {
        // The gradient of the context goes to the selected values only.
        d_value_sum.fill(0.0);
    }

    let key = call.key.head(kv_head, seq_k * d_head);
    let mut written = 0;
    for row in rows {
        let [query_head, row] = call.locate_row(kv_head, row);
        let queries = call.queries([example, query_head], row);
        let count = queries.len();
        let first = (example * heads + query_head) * seq_q;
        let query_buffers = [
            &mut *query_buffer,
            &mut *context_buffer,
            &mut *d_context_buffer,
        ];
        let rows = QueryRows::gather(call, saved, first, &queries, query_buffers);
        let (query, d_context) = (rows.query, rows.d_context);
        // SAFETY: the caller enabled the instructions.
        unsafe { buffers.load_queries::<S>(call, saved, first, &queries, &rows) };
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
            let queries = queries.range();
            let selected = &saved.selected[first + queries.start..][..count];
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
            let key_count = tile.keys.len();
            let (d_key_rows, d_value_rows, mode) = match &tile.keys {
                Indices::Range(keys) => {
                    let is_written = &mut is_written[keys.start / KEYS];
                    let mode = if std::mem::replace(is_written, true) {
                        Accumulate::Add
                    } else {
                        Accumulate::Overwrite
                    };
                    (
                        &mut d_key[keys.start * wide_head..keys.end * wide_head],
                        &mut d_value_sum[keys.start * wide_value..keys.end * wide_value],
                        mode,
                    )
                }
                Indices::List(keys) => (
                    &mut d_key_tile[..keys.len() * wide_head],
                    &mut d_value_tile[..keys.len() * wide_value],
                    Accumulate::Overwrite,
                ),
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
                        (d_value_rows.as_mut_ptr(), wide_value),
                        mode,
                    );
                    if finite_d_context.is_some() {
                        let sums = (&mut *d_value_rows, wide_value);
                        add_non_finite_by_query(buffers.weights, d_context, d_value, sums);
                    }
                }
                if is_additive {
                    if mode == Accumulate::Overwrite {
                        d_key_rows.fill(0.0);
                    }
                    let grads = AdditiveGrads {
                        d_query_t,
                        d_key: (d_key_rows, wide_head),
                        d_vector,
                        by_key,
                    };
                    let keys = tile.keys.range();
                    let key_rows = &key[keys.start * d_head..keys.end * d_head];
                    buffers.additive_backward::<S>(key_rows, call.vector(query_head), grads);
                    continue;
                }
                let key_rows = match &tile.keys {
                    Indices::Range(keys) => &key[keys.start * d_head..keys.end * d_head],
                    Indices::List(keys) => &buffers.keys[..keys.len() * d_head],
                };
                matmul::<S, false>(
                    [key_count, count, wide_head],
                    rows_of(buffers.d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key_rows.as_mut_ptr(), wide_head),
                    mode,
                );
                // dQ += dSᵀ · K, transposed like the queries.
                let finite_key = finite_copy(key_rows, call.may_mask(tile.is_unmasked()));
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
                    let sums = (&mut *d_key_rows, wide_head);
                    add_non_finite_by_query(buffers.d_scores, query, d_head, sums);
                }
            }
            if let Indices::List(keys) = &tile.keys {
                scatter_add(d_key_tile, keys, d_key, wide_head);
                scatter_add(d_value_tile, keys, d_value_sum, wide_value);
            }
        }
        if is_gathered {
            // The queries are not read again.
            let rows = &mut query_buffer[..count * d_head];
            // SAFETY: the caller enabled the instructions.
            unsafe { columns_to_rows::<S>(d_query_t, rows, d_head) };
            let head_len = seq_q * d_head;
            let d_query = &mut grads.d_query[query_head % group * head_len..][..head_len];
            for (row, query) in rows.chunks_exact(d_head).zip(queries.iter()) {
                add(&mut d_query[query * d_head..][..d_head], row);
            }
            continue;
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
/// means that `d_bias` is broadcast in that dimension; its first element is at `offset`.
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
    strides: [isize; 2],
    (offset, d_bias): (isize, &mut [f32]),
) {
    let queries = call.queries([example, head], row);
    let first = (example * call.shape.heads + head) * call.shape.seq_q;
    let (mut scratch, mut tile_scratch) = (Scratch::take(), Scratch::take());
    let query_buffers = scratch.split(QueryRows::buffer_lens(call));
    let rows = QueryRows::gather(call, saved, first, &queries, query_buffers);
    let mut buffers = TileBuffers::new(call, &mut tile_scratch);
    // SAFETY: the caller enabled the instructions.
    unsafe { buffers.load_queries::<S>(call, saved, first, &queries, &rows) };
    for tile in call.tiles([example, head], row) {
        if buffers.excludes(call, &tile.keys) {
            continue;
        }
        // SAFETY: the caller enabled the instructions.
        unsafe { buffers.compute_tile::<S>(call, &tile, GradTarget::Scores) };
        for (column, key) in buffers.d_scores.chunks_exact(QUERIES).zip(tile.keys.iter()) {
            for (query, d_score) in queries.iter().zip(column) {
                let at = query as isize * strides[0] + key as isize * strides[1] - offset;
                d_bias[at as usize] += d_score;
            }
        }
    }
}

/// Adds rows to those of the given indices.
fn scatter_add(rows: &[f32], indices: &[u32], sums: &mut [f32], width: usize) {
    for (row, &index) in rows.chunks_exact(width).zip(indices) {
        add(&mut sums[index as usize * width..][..width], row);
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
