//! The gradients of some queries, and what they add to those of their keys and values.

use std::ops::Range;

use zoo_kernels::cpu::Simd;
use zoo_kernels::cpu::dispatch;
use zoo_kernels::cpu::matmul::{Accumulate, Scalars, matmul};

use super::call::{Call, Out, STATS, Tile, Upstream};
use super::finite::{add_non_finite_by_key, add_non_finite_by_query, finite_copy};
use super::kernel::{
    KEYS, QUERIES, clear_hidden, multiply, products_of_columns, scale_columns, softmax_backward,
    turn, turn_back,
};
use super::score::{finish_scores, write_factors};
use super::scratch::Scratch;

dispatch! {
    /// The gradients of some rows of tiles.
    pub(super) unsafe fn backward(
        call: &Call<'_>,
        upstream: &Upstream<'_>,
        kv_head: usize,
        rows: Range<usize>,
        out: Out<'_>,
    ) by backward_part;
}

dispatch! {
    /// The gradient by the bias of a row of tiles.
    pub(super) unsafe fn backward_of_bias(
        call: &Call<'_>,
        upstream: &Upstream<'_>,
        head: [usize; 2],
        row: usize,
        strides: [usize; 2],
        d_bias: &mut [f32],
    ) by backward_of_bias_tile;
}

/// Some tiles of queries of the heads that share a key and value head, backward.
/// `rows` counts tiles over all these heads.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn backward_part<S: Simd>(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    kv_head: usize,
    rows: Range<usize>,
    out: Out<'_>,
) {
    let [_, heads, seq_q, seq_k] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let (kv_heads, group) = (call.shape.kv_heads, call.shape.group());
    let example = kv_head / kv_heads;
    // Rows as wide as registers: gradients are added to a copy where they are not.
    let (wide_head, wide_value) = (
        d_head.next_multiple_of(S::LANES),
        d_value.next_multiple_of(S::LANES),
    );
    let padded = [wide_head != d_head, wide_value != d_value];
    let room = |padded: bool, rows: usize, width: usize| if padded { rows * width } else { 0 };

    let sizes = [
        d_head * QUERIES,
        room(padded[0], QUERIES, wide_head),
        room(padded[1], QUERIES, wide_value),
        room(padded[0], seq_k, wide_head),
        room(padded[1], seq_k, wide_value),
    ];
    let (mut scratch, mut tile_scratch) = (Scratch::take(), Scratch::take());
    let [
        d_query_turned,
        wide_queries,
        wide_d_context,
        wide_d_key,
        wide_d_value,
    ] = scratch.split(sizes);
    let mut room = TileRoom::new(call, &mut tile_scratch);
    let d_key = if padded[0] {
        &mut *wide_d_key
    } else {
        &mut *out.d_key
    };
    let d_value_sum = if padded[1] {
        &mut *wide_d_value
    } else {
        &mut *out.d_value
    };
    // The first tile of queries to see a tile of keys writes, the others add: so nothing
    // is filled with zeros before, and new memory is not read before it is written,
    // which would map it twice.
    let mut is_written = vec![false; seq_k.div_ceil(KEYS)];

    let key = call.key.head(kv_head, seq_k * d_head);
    let rows_of_head = call.plan.rows();
    let mut written = 0;
    for row in rows {
        let own = kv_head % kv_heads * group + row / rows_of_head;
        let row = row % rows_of_head;
        let queries = call.plan.queries(row);
        let count = queries.len();
        let first = (example * heads + own) * seq_q + queries.start;
        let query = &call.query[first * d_head..][..count * d_head];
        let d_context = &upstream.d_context[first * d_value..][..count * d_value];
        // SAFETY: the caller enabled the instructions.
        unsafe { room.take_queries::<S>(call, upstream, first, count) };
        // What a fully masked row or one that does not see a key holds must not reach its
        // gradients.
        let (finite_query, finite_d_context) = (finite_copy(query), finite_copy(d_context));
        let query_rows = widen(
            finite_query.as_deref().unwrap_or(query),
            d_head,
            wide_queries,
            wide_head,
        );
        let d_context_rows = widen(
            finite_d_context.as_deref().unwrap_or(d_context),
            d_value,
            wide_d_context,
            wide_value,
        );
        d_query_turned.fill(0.0);

        for (keys, is_whole) in call.plan.tiles(example, row) {
            let tile = Tile {
                example,
                head: own,
                queries: queries.clone(),
                keys,
                is_whole,
            };
            let (seen, first_key) = (tile.keys.len(), tile.keys.start);
            let into = match std::mem::replace(&mut is_written[first_key / KEYS], true) {
                true => Accumulate::Add,
                false => Accumulate::Overwrite,
            };
            // SAFETY: the caller enabled the instructions; sizes are those above.
            unsafe {
                room.take_keys::<S>(call, &tile, Wanted::DProducts);
                // dV += P · dO, dK += dS · Q, over the queries of the tile.
                matmul::<S, false>(
                    [seen, count, wide_value],
                    by_key(room.weights.as_ptr(), QUERIES),
                    (d_context_rows, wide_value),
                    (
                        d_value_sum.as_mut_ptr().add(first_key * wide_value),
                        wide_value,
                    ),
                    into,
                );
                matmul::<S, false>(
                    [seen, count, wide_head],
                    by_key(room.d_scores.as_ptr(), QUERIES),
                    (query_rows, wide_head),
                    (d_key.as_mut_ptr().add(first_key * wide_head), wide_head),
                    into,
                );
                // dQ += dSᵀ · K, transposed like the queries.
                let key_rows = &key[first_key * d_head..][..seen * d_head];
                let finite_key = if call.may_hide(&tile) {
                    finite_copy(key_rows)
                } else {
                    None
                };
                let columns = Scalars {
                    start: finite_key.as_deref().unwrap_or(key_rows).as_ptr(),
                    row_stride: 1,
                    column_stride: d_head,
                };
                matmul::<S, false>(
                    [d_head, seen, QUERIES],
                    columns,
                    (room.d_scores.as_ptr(), QUERIES),
                    (d_query_turned.as_mut_ptr(), QUERIES),
                    Accumulate::Add,
                );
                if finite_key.is_some() {
                    add_non_finite_by_key(room.d_scores, key_rows, d_head, d_query_turned);
                }
                if finite_d_context.is_some() {
                    let sums = &mut d_value_sum[first_key * wide_value..][..seen * wide_value];
                    add_non_finite_by_query(room.weights, d_context, d_value, (sums, wide_value));
                }
                if finite_query.is_some() {
                    let sums = &mut d_key[first_key * wide_head..][..seen * wide_head];
                    add_non_finite_by_query(room.d_scores, query, d_head, (sums, wide_head));
                }
            }
        }
        let d_query = &mut out.d_query[written * d_head..][..count * d_head];
        // SAFETY: the caller enabled the instructions.
        unsafe { turn_back::<S>(d_query_turned, d_query, d_head) };
        written += count;
    }
    // Keys that none of these queries sees.
    for (tile, _) in is_written.iter().enumerate().filter(|(_, is)| !**is) {
        let keys = tile * KEYS..seq_k.min((tile + 1) * KEYS);
        d_key[keys.start * wide_head..keys.end * wide_head].fill(0.0);
        d_value_sum[keys.start * wide_value..keys.end * wide_value].fill(0.0);
    }

    if padded[0] {
        narrow(wide_d_key, wide_head, out.d_key, d_head);
    }
    if padded[1] {
        narrow(wide_d_value, wide_value, out.d_value, d_value);
    }
}

/// What one tile of queries of one head adds to the gradient by the bias. `d_bias`
/// has a row for each of them, or one for all if `strides[0]` is zero; likewise keys.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn backward_of_bias_tile<S: Simd>(
    call: &Call<'_>,
    upstream: &Upstream<'_>,
    [example, head]: [usize; 2],
    row: usize,
    strides: [usize; 2],
    d_bias: &mut [f32],
) {
    let queries = call.plan.queries(row);
    let first = (example * call.shape.heads + head) * call.shape.seq_q + queries.start;
    let mut scratch = Scratch::take();
    let mut room = TileRoom::new(call, &mut scratch);
    // SAFETY: the caller enabled the instructions.
    unsafe { room.take_queries::<S>(call, upstream, first, queries.len()) };
    for (keys, is_whole) in call.plan.tiles(example, row) {
        let tile = Tile {
            example,
            head,
            queries: queries.clone(),
            keys,
            is_whole,
        };
        // SAFETY: the caller enabled the instructions.
        unsafe { room.take_keys::<S>(call, &tile, Wanted::DScores) };
        for (column, key) in room.d_scores.chunks_exact(QUERIES).zip(tile.keys) {
            for (query, d_score) in column[..queries.len()].iter().enumerate() {
                d_bias[query * strides[0] + key * strides[1]] += d_score;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// By the scores, where a bias was added.
    DScores,
    /// By the products of query and key, times the scale.
    DProducts,
}

/// Room for one tile on its way back, with what was read of its queries.
struct TileRoom<'a> {
    turned: &'a mut [f32],
    d_turned: &'a mut [f32],
    context_turned: &'a mut [f32],
    weights: &'a mut [f32],
    d_scores: &'a mut [f32],
    largest: &'a mut [f32],
    /// One over the sum of each row, zero for one that is fully masked.
    inverse: &'a mut [f32],
    mean: &'a mut [f32],
    factors: &'a mut [f32],
    slope: &'a mut [f32],
}

impl<'a> TileRoom<'a> {
    fn new(call: &Call<'_>, scratch: &'a mut Scratch) -> Self {
        let if_any = |is_there: bool| if is_there { KEYS * QUERIES } else { 0 };
        let [
            turned,
            d_turned,
            context_turned,
            weights,
            d_scores,
            largest,
            inverse,
            mean,
            factors,
            slope,
        ] = scratch.split([
            call.shape.d_head * QUERIES,
            call.shape.d_value * QUERIES,
            call.shape.d_value * QUERIES,
            KEYS * QUERIES,
            KEYS * QUERIES,
            QUERIES,
            QUERIES,
            QUERIES,
            if_any(call.dropout.is_some()),
            if_any(call.softcap.is_some()),
        ]);
        Self {
            turned,
            d_turned,
            context_turned,
            weights,
            d_scores,
            largest,
            inverse,
            mean,
            factors,
            slope,
        }
    }

    /// Reads `count` queries from the `first` on, counted over all examples and heads.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    unsafe fn take_queries<S: Simd>(
        &mut self,
        call: &Call<'_>,
        upstream: &Upstream<'_>,
        first: usize,
        count: usize,
    ) {
        let [d_head, d_value] = call.shape.widths();
        let query = &call.query[first * d_head..][..count * d_head];
        let d_context = &upstream.d_context[first * d_value..][..count * d_value];
        let context = &upstream.context[first * d_value..][..count * d_value];
        // SAFETY: the caller enabled the instructions.
        unsafe {
            turn::<S>(query, d_head, self.turned);
            scale_columns::<S>(
                self.turned,
                &[call.scale * std::f32::consts::LOG2_E; QUERIES],
            );
            turn::<S>(d_context, d_value, self.d_turned);
            turn::<S>(context, d_value, self.context_turned);
            // In the order of the matmul that it is taken off from: where a query sees
            // one key alone, the difference is then zero and not a rounding.
            products_of_columns::<S>(self.context_turned, self.d_turned, self.mean);
        }
        self.largest.fill(0.0);
        self.inverse.fill(0.0);
        let stats = upstream.stats[STATS * first..][..STATS * count]
            .as_chunks()
            .0;
        for (i, &[largest, sum]) in stats.iter().enumerate() {
            self.largest[i] = largest;
            self.inverse[i] = if sum == 0.0 { 0.0 } else { 1.0 / sum };
        }
        if let Some(d_log_sum_exp) = upstream.d_log_sum_exp {
            for (mean, d) in self.mean.iter_mut().zip(&d_log_sum_exp[first..][..count]) {
                *mean -= d;
            }
        }
    }

    /// Computes the weights of a tile, as they met the values, and its gradient.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled; the queries of the tile were taken.
    #[inline(always)]
    unsafe fn take_keys<S: Simd>(&mut self, call: &Call<'_>, tile: &Tile, wanted: Wanted) {
        let seq_k = call.shape.seq_k;
        let [d_head, d_value] = call.shape.widths();
        let kv_head = tile.example * call.shape.kv_heads + tile.head / call.shape.group();
        let (seen, first) = (tile.keys.len(), tile.keys.start);
        let key = call.key.head(kv_head, seq_k * d_head);
        let value = call.value.head(kv_head, seq_k * d_value);
        let d_scores = self.d_scores.as_mut_ptr();
        // SAFETY: the caller enabled the instructions; sizes are those of `new`.
        unsafe {
            matmul::<S, false>(
                [seen, d_head, QUERIES],
                by_key(key.as_ptr().add(first * d_head), d_head),
                (self.turned.as_ptr(), QUERIES),
                (self.weights.as_mut_ptr(), QUERIES),
                Accumulate::Overwrite,
            );
            if !(tile.is_whole && call.is_plain()) {
                finish_scores::<S>(call, tile, self.weights, self.slope);
            }
            let scores = self.weights.as_mut_ptr();
            matmul::<S, false>(
                [seen, d_value, QUERIES],
                by_key(value.as_ptr().add(first * d_value), d_value),
                (self.d_turned.as_ptr(), QUERIES),
                (d_scores, QUERIES),
                Accumulate::Overwrite,
            );
            if let Some(dropout) = &call.dropout {
                write_factors(dropout, tile, self.factors);
                multiply::<S>(seen, d_scores, self.factors.as_ptr());
            }
            let scale = match wanted {
                Wanted::DScores => 1.0,
                Wanted::DProducts => call.scale,
            };
            softmax_backward::<S>(
                seen,
                scores,
                d_scores,
                [
                    self.largest.as_ptr(),
                    self.inverse.as_ptr(),
                    self.mean.as_ptr(),
                ],
                scale,
            );
            if call.softcap.is_some() && wanted == Wanted::DProducts {
                multiply::<S>(seen, d_scores, self.slope.as_ptr());
            }
            if call.may_hide(tile) {
                clear_hidden::<S>(seen, scores, d_scores);
            }
            if call.dropout.is_some() {
                multiply::<S>(seen, scores, self.factors.as_ptr());
            }
        }
    }
}

/// A row of scalars for each key, `width` apart.
#[inline(always)]
fn by_key(start: *const f32, width: usize) -> Scalars {
    Scalars {
        start,
        row_stride: width,
        column_stride: 1,
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

/// Copies the first numbers of each wide row.
fn narrow(wide_rows: &[f32], wide: usize, rows: &mut [f32], width: usize) {
    for (from, row) in wide_rows
        .chunks_exact(wide)
        .zip(rows.chunks_exact_mut(width))
    {
        row.copy_from_slice(&from[..width]);
    }
}
