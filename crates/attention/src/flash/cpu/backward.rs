//! The backward pass of some query tiles, which accumulates the gradients of keys and values.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, matmul};

use super::call::{BackwardInputs, Call, GradSlices, STATS, Tile};
use super::finite::{add_non_finite_by_key, add_non_finite_by_query, finite_copy};
use super::kernel::{
    KEYS, QUERIES, clear_masked, column_dots, columns_of, columns_to_rows, multiply, rows_of,
    rows_to_columns, scale_columns, softmax_backward,
};
use super::score::{finish_scores, write_dropout_factors};
use crate::cpu::scratch::Scratch;

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

    let sizes = [
        d_head * QUERIES,
        len(pads_head, QUERIES, wide_head),
        len(pads_value, QUERIES, wide_value),
        len(pads_head, seq_k, wide_head),
        len(pads_value, seq_k, wide_value),
    ];
    let (mut scratch, mut tile_scratch) = (Scratch::take(), Scratch::take());
    let [
        d_query_t,
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

        for tile in call.tiles([example, query_head], row) {
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
                matmul::<S, false>(
                    [key_count, count, wide_head],
                    rows_of(buffers.d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key.as_mut_ptr().add(first_key * wide_head), wide_head),
                    mode,
                );
                // dQ += dSᵀ · K, transposed like the queries.
                let key_rows = &key[first_key * d_head..][..key_count * d_head];
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
                if finite_d_context.is_some() {
                    let sums = &mut d_value_sum[first_key * wide_value..][..key_count * wide_value];
                    add_non_finite_by_query(
                        buffers.weights,
                        d_context,
                        d_value,
                        (sums, wide_value),
                    );
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
        written += count;
    }
    // Keys that are masked for all of these queries.
    for (tile, _) in is_written.iter().enumerate().filter(|(_, is)| !**is) {
        let keys = tile * KEYS..seq_k.min((tile + 1) * KEYS);
        d_key[keys.start * wide_head..keys.end * wide_head].fill(0.0);
        d_value_sum[keys.start * wide_value..keys.end * wide_value].fill(0.0);
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
        // SAFETY: the caller enabled the instructions.
        unsafe { buffers.compute_tile::<S>(call, &tile, GradTarget::Scores) };
        for (column, key) in buffers.d_scores.chunks_exact(QUERIES).zip(tile.keys) {
            for (query, d_score) in column[..queries.len()].iter().enumerate() {
                d_bias[query * strides[0] + key * strides[1]] += d_score;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GradTarget {
    /// The scores, to which a bias is added.
    Scores,
    /// The unscaled dot products; the gradient includes the scale.
    DotProducts,
}

/// Buffers for one tile of the backward pass. A suffix `_t` means transposed.
struct TileBuffers<'a> {
    query_t: &'a mut [f32],
    d_context_t: &'a mut [f32],
    context_t: &'a mut [f32],
    weights: &'a mut [f32],
    d_scores: &'a mut [f32],
    max: &'a mut [f32],
    /// One over the sum of each row, zero for a fully masked row.
    inverse: &'a mut [f32],
    /// `rowsum(dO · O)`, minus the gradient of the log-sum-exp.
    delta: &'a mut [f32],
    factors: &'a mut [f32],
    softcap_grad: &'a mut [f32],
}

impl<'a> TileBuffers<'a> {
    fn new(call: &Call<'_>, scratch: &'a mut Scratch) -> Self {
        let [d_head, d_value] = call.shape.widths();
        let keys_if = |is_needed: bool| if is_needed { KEYS } else { 0 };
        let [dropout, softcap] = [call.dropout.is_some(), call.softcap.is_some()].map(keys_if);
        let rows = [
            d_head, d_value, d_value, KEYS, KEYS, 1, 1, 1, dropout, softcap,
        ];
        let [
            query_t,
            d_context_t,
            context_t,
            weights,
            d_scores,
            max,
            inverse,
            delta,
            factors,
            softcap_grad,
        ] = scratch.split(rows.map(|rows| rows * QUERIES));
        Self {
            query_t,
            d_context_t,
            context_t,
            weights,
            d_scores,
            max,
            inverse,
            delta,
            factors,
            softcap_grad,
        }
    }

    /// Loads `count` queries from `first` on, counted over all examples and heads.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn load_queries<S: Simd>(
        &mut self,
        call: &Call<'_>,
        saved: &BackwardInputs<'_>,
        first: usize,
        count: usize,
    ) {
        let [d_head, d_value] = call.shape.widths();
        let query = &call.query[first * d_head..][..count * d_head];
        let d_context = &saved.d_context[first * d_value..][..count * d_value];
        let context = &saved.context[first * d_value..][..count * d_value];
        // SAFETY: the caller enabled the instructions.
        unsafe {
            rows_to_columns::<S>(query, d_head, self.query_t);
            scale_columns::<S>(self.query_t, &[call.scale * LOG2_E; QUERIES]);
            rows_to_columns::<S>(d_context, d_value, self.d_context_t);
            rows_to_columns::<S>(context, d_value, self.context_t);
            // Summed in the order of the matmul of `d_weights`: if only one key is visible, the
            // difference is exactly zero.
            column_dots::<S>(self.context_t, self.d_context_t, self.delta);
        }
        self.max.fill(0.0);
        self.inverse.fill(0.0);
        let stats = saved.stats[STATS * first..][..STATS * count].as_chunks().0;
        for (i, &[max, sum]) in stats.iter().enumerate() {
            self.max[i] = max;
            self.inverse[i] = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        }
        if let Some(d_log_sum_exp) = saved.d_log_sum_exp {
            for (delta, d) in self.delta.iter_mut().zip(&d_log_sum_exp[first..][..count]) {
                *delta -= d;
            }
        }
    }

    /// Computes the weights of a tile, including dropout, and the gradients of `target`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled; the queries of the tile are loaded.
    #[inline(always)]
    unsafe fn compute_tile<S: Simd>(&mut self, call: &Call<'_>, tile: &Tile, target: GradTarget) {
        let seq_k = call.shape.seq_k;
        let [d_head, d_value] = call.shape.widths();
        let kv_head = tile.example * call.shape.kv_heads + tile.head / call.shape.group();
        let (count, first) = (tile.keys.len(), tile.keys.start);
        let key = call.key.head(kv_head, seq_k * d_head);
        let value = call.value.head(kv_head, seq_k * d_value);
        let d_scores = self.d_scores.as_mut_ptr();
        // SAFETY: the caller enabled the instructions; the buffers have the sizes of `new`.
        unsafe {
            matmul::<S, false>(
                [count, d_head, QUERIES],
                rows_of(key.as_ptr().add(first * d_head), d_head),
                (self.query_t.as_ptr(), QUERIES),
                (self.weights.as_mut_ptr(), QUERIES),
                Accumulate::Overwrite,
            );
            if !(tile.is_unmasked && call.is_plain()) {
                finish_scores::<S>(call, tile, self.weights, self.softcap_grad);
            }
            let scores = self.weights.as_mut_ptr();
            matmul::<S, false>(
                [count, d_value, QUERIES],
                rows_of(value.as_ptr().add(first * d_value), d_value),
                (self.d_context_t.as_ptr(), QUERIES),
                (d_scores, QUERIES),
                Accumulate::Overwrite,
            );
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, tile, self.factors);
                multiply::<S>(count, d_scores, self.factors.as_ptr());
            }
            let scale = match target {
                GradTarget::Scores => 1.0,
                GradTarget::DotProducts => call.scale,
            };
            let rows = [&self.max, &self.inverse, &self.delta].map(|row| row.as_ptr());
            softmax_backward::<S>(count, scores, d_scores, rows, scale);
            if call.softcap.is_some() && target == GradTarget::DotProducts {
                multiply::<S>(count, d_scores, self.softcap_grad.as_ptr());
            }
            if call.may_mask(tile.is_unmasked) {
                clear_masked::<S>(count, scores, d_scores);
            }
            if call.dropout.is_some() {
                multiply::<S>(count, scores, self.factors.as_ptr());
            }
        }
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
