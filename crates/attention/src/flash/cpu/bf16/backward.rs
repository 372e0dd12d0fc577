//! The backward pass.
//!
//! A task computes some rows of tiles of the queries that share a key and value head. It accumulates
//! the gradients of keys and values, in `f32`, for as many keys at a time as fit into the L2 cache with
//! their gradients.

use std::ops::Range;

use burn::tensor::bf16;
use rayon::prelude::*;
use zoo_kernels::cpu::Avx512;
use zoo_kernels::cpu::bf16::pack::{
    Rows, left_of_rows, right_of_columns, right_of_rows, round_to_bf16,
};
use zoo_kernels::cpu::bf16::{
    Amx, Avx512Bf16, BLOCK, Bf16Product, Bf16Set, Layout, TileState, zeros,
};
use zoo_kernels::cpu::scratch::Scratch;

use super::super::call::{BackwardInputs, Call, STATS, Tile};
use super::super::kernel::{KEYS, QUERIES, columns_to_rows};
use super::super::score::write_dropout_factors;
use super::super::{TASKS_PER_THREAD, parts, queries_in};
use super::dispatch_bf16;
use super::forward::{finish_tile, wide};
use super::operands::{BackwardKeys, as_bf16, is_all_finite};
use super::softmax::{BY_KEY, BY_QUERY, TileGradients, interleaved_query, softmax_backward};

/// Keys whose gradients are accumulated at a time: with keys, values and gradients of 64 elements they
/// take 1.1 MB.
const SPAN: usize = 10 * KEYS;

/// Gradients of query, key and value; `None` if a tensor is not finite.
pub(in crate::flash::cpu) fn backward(
    set: Bf16Set,
    call: &Call<'_, bf16>,
    saved: &BackwardInputs<'_, bf16>,
) -> Option<[Vec<bf16>; 3]> {
    let shape = call.shape;
    let [d_head, d_value] = shape.widths();
    let packed = BackwardKeys::pack(set, call)?;
    if !(is_all_finite(set, call.query) && is_all_finite(set, saved.d_context)) {
        return None;
    }
    let keys = shape.batch * shape.kv_heads * shape.seq_k;
    let mut d_query = zeros(call.query.len());
    let (mut d_key, mut d_value_sum) = (zeros(keys * d_head), zeros(keys * d_value));
    let padded = shape.seq_k.next_multiple_of(BLOCK);
    let sum_lens = [d_head, d_value].map(|width| padded * wide(width));
    // The queries of all heads that share a key and value head are contiguous.
    d_query
        .par_chunks_mut(shape.group() * shape.seq_q * d_head)
        .zip(d_key.par_chunks_mut(shape.seq_k * d_head))
        .zip(d_value_sum.par_chunks_mut(shape.seq_k * d_value))
        .enumerate()
        .for_each(|(kv_head, ((d_query, d_key), d_value_sum))| {
            let sums_len = sum_lens.iter().sum();
            let parts = parts(call, kv_head, sums_len, TASKS_PER_THREAD);
            let mut scratch = Scratch::take();
            let [sums] = scratch.split([parts.len() * sums_len]);
            let mut rest = d_query;
            let mut tasks = Vec::with_capacity(parts.len());
            for (rows, sums) in parts.iter().zip(sums.chunks_exact_mut(sums_len)) {
                let queries: usize = rows.clone().map(|row| queries_in(call, row)).sum();
                let (d_query, after) = rest.split_at_mut(queries * d_head);
                rest = after;
                tasks.push((rows.clone(), d_query, sums));
            }
            tasks.into_par_iter().for_each(|(rows, d_query, sums)| {
                let sums = sums.split_at_mut(sum_lens[0]);
                let grads = GradSums {
                    d_query,
                    d_key: sums.0,
                    d_value: sums.1,
                };
                // SAFETY: the CPU supports the instruction set.
                unsafe { backward_rows(set, call, &packed, saved, kv_head, rows, grads) };
            });
            // The sums of all tasks, in order.
            let (first, copies) = sums.split_at_mut(sums_len);
            for copy in copies.chunks_exact(sums_len) {
                zoo_kernels::cpu::add(first, copy);
            }
            let (key_sums, value_sums) = first.split_at_mut(sum_lens[0]);
            // SAFETY: the CPU supports the instruction set.
            unsafe {
                finish_sums(set, key_sums, d_head, call.scale, d_key);
                finish_sums(set, value_sums, d_value, 1.0, d_value_sum);
            }
        });
    Some([d_query, d_key, d_value_sum])
}

/// Scales and rounds padded rows.
///
/// # Safety
///
/// The CPU supports the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn finish_sums(_set: Bf16Set, sums: &mut [f32], width: usize, scale: f32, to: &mut [bf16]) {
    let rows = sums.chunks_exact_mut(wide(width));
    for (row, to) in rows.zip(to.chunks_exact_mut(width)) {
        for sum in row.iter_mut() {
            *sum *= scale;
        }
        // SAFETY: as promised by the caller.
        unsafe { round_to_bf16(&row[..width], to) };
    }
}

/// What a task writes: the gradients of its queries, and sums over them for all keys, padded.
struct GradSums<'a> {
    d_query: &'a mut [bf16],
    d_key: &'a mut [f32],
    d_value: &'a mut [f32],
}

dispatch_bf16! {
    /// The gradients of some rows of tiles.
    unsafe fn backward_rows(
        call: &Call<'_, bf16>,
        packed: &BackwardKeys,
        saved: &BackwardInputs<'_, bf16>,
        kv_head: usize,
        rows: Range<usize>,
        grads: GradSums<'_>,
    ) by backward_part;
}

/// `rows` counts tiles of queries over all heads that share the key and value head.
///
/// # Safety
///
/// The instructions of `P` and of its vectors are enabled.
#[inline(always)]
unsafe fn backward_part<P: Bf16Product>(
    call: &Call<'_, bf16>,
    packed: &BackwardKeys,
    saved: &BackwardInputs<'_, bf16>,
    kv_head: usize,
    rows: Range<usize>,
    grads: GradSums<'_>,
) {
    let [_, heads, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let [wide_head, wide_value] = [d_head, d_value].map(wide);
    let example = kv_head / call.shape.kv_heads;
    let GradSums {
        d_query,
        d_key,
        d_value: d_value_sum,
    } = grads;
    let query_len = wide_head * QUERIES;
    let (mut scratch, mut tile_scratch) = (Scratch::take(), Scratch::take());
    let [d_query_t, d_query_rows] = scratch.split([rows.len() * query_len, d_head * QUERIES]);
    let mut buffers = TileBuffers::new(call, &mut tile_scratch);
    d_query_t.fill(0.0);
    d_key.fill(0.0);
    d_value_sum.fill(0.0);
    // SAFETY: the caller enabled the instructions; the buffers have the sizes that the products and
    // packings need.
    unsafe {
        let _state = TileState::<P>::new();
        for span in (0..seq_k).step_by(SPAN) {
            for (i, row) in rows.clone().enumerate() {
                let [query_head, row] = call.locate_row(kv_head, row);
                let first = (example * heads + query_head) * seq_q;
                let d_query_t = &mut d_query_t[i * query_len..][..query_len];
                let mut is_loaded = false;
                for tile in call.tiles([example, query_head], row) {
                    let keys = tile.keys.range();
                    if keys.start < span {
                        continue;
                    }
                    if keys.start >= span + SPAN {
                        break;
                    }
                    if !is_loaded {
                        buffers.load_queries::<P>(call, saved, first, call.plan.queries(row));
                        is_loaded = true;
                    }
                    let padded = keys.len().next_multiple_of(BLOCK);
                    buffers.compute_tile::<P>(call, packed, kv_head, &tile);
                    // dV += P · dO, dK += dS · Q, over the queries of the tile.
                    P::product::<true>(
                        [padded, QUERIES, wide_value],
                        BY_QUERY.tiles(buffers.weights.as_ptr()),
                        QUERY_ROWS.tiles(buffers.d_context_rows.as_ptr()),
                        d_value_sum[keys.start * wide_value..].as_mut_ptr(),
                        wide_value,
                    );
                    P::product::<true>(
                        [padded, QUERIES, wide_head],
                        BY_QUERY.tiles(buffers.d_scores.as_ptr()),
                        QUERY_ROWS.tiles(buffers.query_rows.as_ptr()),
                        d_key[keys.start * wide_head..].as_mut_ptr(),
                        wide_head,
                    );
                    // dQᵀ += Kᵀ · dS, over the keys of the tile.
                    P::product::<true>(
                        [wide_head, padded, QUERIES],
                        packed.key_elements.tiles(kv_head, keys.start),
                        BY_KEY.tiles(buffers.d_scores_by_key.as_ptr()),
                        d_query_t.as_mut_ptr(),
                        QUERIES,
                    );
                }
            }
        }
    }
    let mut written = 0;
    for (row, d_query_t) in rows.zip(d_query_t.chunks_exact(query_len)) {
        let count = queries_in(call, row);
        let d_query = &mut d_query[written * d_head..][..count * d_head];
        written += count;
        // SAFETY: the caller enabled the instructions.
        unsafe {
            columns_to_rows::<Avx512>(&d_query_t[..d_head * QUERIES], d_query_rows, d_head);
            for (column, from) in d_query_rows.chunks_exact_mut(d_head).enumerate() {
                let query = interleaved_query(column);
                if query < count {
                    for x in from.iter_mut() {
                        *x *= call.scale;
                    }
                    round_to_bf16(from, &mut d_query[query * d_head..][..d_head]);
                }
            }
        }
    }
}

/// Rows of a tile of queries as the right operand of sums over queries.
const QUERY_ROWS: Layout = Layout::inner_first(QUERIES);

/// Buffers for one tile of queries. `_rows` and `_columns` are packed rows as rows or columns of a right
/// operand.
struct TileBuffers<'a> {
    query_rows: &'a mut [bf16],
    query_columns: &'a mut [bf16],
    d_context_rows: &'a mut [bf16],
    d_context_columns: &'a mut [bf16],
    context: &'a mut [bf16],
    scores: &'a mut [f32],
    d_weights: &'a mut [f32],
    weights: &'a mut [bf16],
    d_scores: &'a mut [bf16],
    d_scores_by_key: &'a mut [bf16],
    max: &'a mut [f32],
    /// One over the sum of each row, zero for a fully masked row.
    inverse: &'a mut [f32],
    /// `rowsum(dO · O)`, minus the gradient of the log-sum-exp.
    delta: &'a mut [f32],
    factors: &'a mut [f32],
    /// The derivative of score function and softcap.
    score_grad: &'a mut [f32],
}

impl<'a> TileBuffers<'a> {
    fn new(call: &Call<'_, bf16>, scratch: &'a mut Scratch) -> Self {
        let [head, value] = call.shape.widths().map(|width| wide(width) / 2);
        // Both are applied by the same kernel.
        let factors = if uses_factors(call) { KEYS } else { 0 };
        let rounded = KEYS / 2;
        let rows = [
            head, head, value, value, value, rounded, rounded, rounded, KEYS, KEYS, 1, 1, 1,
            factors, factors,
        ];
        let [
            query_rows,
            query_columns,
            d_context_rows,
            d_context_columns,
            context,
            weights,
            d_scores,
            d_scores_by_key,
            scores,
            d_weights,
            max,
            inverse,
            delta,
            factors,
            score_grad,
        ] = scratch.split(rows.map(|rows| rows * QUERIES));
        // Without dropout, or without softcap and score function.
        factors.fill(1.0);
        score_grad.fill(1.0);
        Self {
            query_rows: as_bf16(query_rows),
            query_columns: as_bf16(query_columns),
            d_context_rows: as_bf16(d_context_rows),
            d_context_columns: as_bf16(d_context_columns),
            context: as_bf16(context),
            scores,
            d_weights,
            weights: as_bf16(weights),
            d_scores: as_bf16(d_scores),
            d_scores_by_key: as_bf16(d_scores_by_key),
            max,
            inverse,
            delta,
            factors,
            score_grad,
        }
    }

    /// Loads queries of the head whose first query, counted over all examples and heads, is `first`.
    ///
    /// # Safety
    ///
    /// The instructions of `P` and of its vectors are enabled, and there is a [`TileState`].
    #[inline(always)]
    unsafe fn load_queries<P: Bf16Product>(
        &mut self,
        call: &Call<'_, bf16>,
        saved: &BackwardInputs<'_, bf16>,
        first: usize,
        queries: Range<usize>,
    ) {
        let [d_head, d_value] = call.shape.widths();
        let (start, end) = (first + queries.start, first + queries.end);
        let rows_of = [
            Rows::new(&call.query[start * d_head..end * d_head], d_head),
            Rows::new(&saved.d_context[start * d_value..end * d_value], d_value),
            Rows::new(&saved.context[start * d_value..end * d_value], d_value),
        ];
        let [query, d_context, context] = rows_of;
        let by_head = Layout::inner_first(d_head);
        let by_value = Layout::inner_first(d_value);
        if queries.len() <= QUERIES - BLOCK {
            // Blocks without a query are not written below.
            self.query_rows.fill(bf16::ZERO);
            self.query_columns.fill(bf16::ZERO);
            self.d_context_rows.fill(bf16::ZERO);
            self.d_context_columns.fill(bf16::ZERO);
            self.context.fill(bf16::ZERO);
        }
        // SAFETY: the caller enabled the instructions; the buffers have the sizes of `new`.
        unsafe {
            right_of_rows(query, QUERY_ROWS, self.query_rows.as_mut_ptr());
            right_of_columns(query, by_head, self.query_columns.as_mut_ptr());
            right_of_rows(d_context, QUERY_ROWS, self.d_context_rows.as_mut_ptr());
            right_of_columns(d_context, by_value, self.d_context_columns.as_mut_ptr());
            left_of_rows(context, by_value, self.context.as_mut_ptr());
            // The diagonal of O · dOᵀ. Summed as V · dOᵀ is: if only one key is visible, the difference
            // is exactly zero.
            P::product::<false>(
                [QUERIES, wide(d_value), QUERIES],
                by_value.tiles(self.context.as_ptr()),
                by_value.tiles(self.d_context_columns.as_ptr()),
                self.scores.as_mut_ptr(),
                QUERIES,
            );
        }
        self.max.fill(0.0);
        self.inverse.fill(0.0);
        self.delta.fill(0.0);
        for (i, query) in (start..end).enumerate() {
            let sum = saved.stats[STATS * query + 1];
            self.max[i] = saved.stats[STATS * query];
            self.inverse[i] = if sum == 0.0 { 0.0 } else { 1.0 / sum };
            self.delta[i] = self.scores[i * QUERIES + i];
            if let Some(d_log_sum_exp) = saved.d_log_sum_exp {
                self.delta[i] -= d_log_sum_exp[query];
            }
        }
    }

    /// Computes the weights of a tile, including dropout, and the gradients of its dot products without
    /// the scale.
    ///
    /// # Safety
    ///
    /// As for [`load_queries`](Self::load_queries); the queries of the tile are loaded.
    #[inline(always)]
    unsafe fn compute_tile<P: Bf16Product>(
        &mut self,
        call: &Call<'_, bf16>,
        packed: &BackwardKeys,
        kv_head: usize,
        tile: &Tile<'_>,
    ) {
        let [d_head, d_value] = call.shape.widths();
        let keys = tile.keys.range();
        let padded = keys.len().next_multiple_of(BLOCK);
        // SAFETY: the caller enabled the instructions; the buffers have the sizes of `new`.
        unsafe {
            P::product::<false>(
                [padded, wide(d_head), QUERIES],
                packed.key.tiles(kv_head, keys.start),
                Layout::inner_first(d_head).tiles(self.query_columns.as_ptr()),
                self.scores.as_mut_ptr(),
                QUERIES,
            );
            let score_grad: &mut [f32] = match call.has_score_grad() {
                true => self.score_grad,
                false => &mut [],
            };
            let scale = finish_tile(call, tile, self.scores, score_grad);
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, tile, self.factors);
            }
            P::product::<false>(
                [padded, wide(d_value), QUERIES],
                packed.value.tiles(kv_head, keys.start),
                Layout::inner_first(d_value).tiles(self.d_context_columns.as_ptr()),
                self.d_weights.as_mut_ptr(),
                QUERIES,
            );
            let inputs = TileGradients {
                scores: self.scores.as_ptr(),
                scale,
                d_weights: self.d_weights.as_ptr(),
                factors: self.factors.as_ptr(),
                score_grad: self.score_grad.as_ptr(),
                max: self.max.as_ptr(),
                inverse: self.inverse.as_ptr(),
                delta: self.delta.as_ptr(),
            };
            let weights = self.weights.as_mut_ptr();
            let d_scores = [&mut *self.d_scores, &mut *self.d_scores_by_key];
            let [by_query, by_key] = d_scores;
            let d_scores = [by_query.as_mut_ptr(), by_key.as_mut_ptr()];
            if uses_factors(call) {
                softmax_backward::<true>(padded, &inputs, weights, d_scores);
            } else {
                softmax_backward::<false>(padded, &inputs, weights, d_scores);
            }
        }
    }
}

/// Whether weights are multiplied by dropout factors, or gradients by a derivative.
fn uses_factors(call: &Call<'_, bf16>) -> bool {
    call.has_factors() || call.has_score_grad()
}
