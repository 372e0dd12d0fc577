//! The forward pass of one tile of queries over all its visible keys.

use burn::tensor::bf16;
use zoo_kernels::cpu::Avx512;
use zoo_kernels::cpu::bf16::pack::{Rows, right_of_columns, round_to_bf16};
use zoo_kernels::cpu::bf16::{Amx, Avx512Bf16, BLOCK, Bf16Product, Bf16Set, Layout, TileState};
use zoo_kernels::cpu::scratch::Scratch;

use super::super::call::{Call, STATS, Tile};
use super::super::kernel::{KEYS, QUERIES, columns_to_rows, scale_columns};
use super::super::score::{finish_scores, write_dropout_factors};
use super::dispatch_bf16;
use super::operands::{ForwardKeys, as_bf16};
use super::softmax::{BY_KEY, online_softmax};

dispatch_bf16! {
    /// One tile of queries.
    pub(super) unsafe fn forward(
        call: &Call<'_, bf16>,
        packed: &ForwardKeys,
        head: usize,
        row: usize,
        context: &mut [bf16],
        stats: &mut [f32],
    ) by forward_tile;
}

/// Context and statistics of the queries of a row of tiles.
///
/// # Safety
///
/// The instructions of `P` and of its vectors are enabled.
#[inline(always)]
unsafe fn forward_tile<P: Bf16Product>(
    call: &Call<'_, bf16>,
    packed: &ForwardKeys,
    head: usize,
    row: usize,
    context: &mut [bf16],
    stats: &mut [f32],
) {
    let [_, heads, seq_q, _] = call.shape.scores();
    let [d_head, d_value] = call.shape.widths();
    let [wide_head, wide_value] = [d_head, d_value].map(wide);
    let (example, query_head) = (head / heads, head % heads);
    let kv_head = example * call.shape.kv_heads + query_head / call.shape.group();
    let queries = call.plan.queries(row);

    let factor_rows = if call.has_factors() { KEYS } else { 0 };
    let mut scratch = Scratch::take();
    let rows = [
        wide_head / 2,
        KEYS,
        KEYS / 2,
        wide_value,
        1,
        1,
        factor_rows,
        d_value,
    ];
    let [
        query_tiles,
        scores,
        weights,
        context_t,
        max,
        sum,
        factors,
        context_rows,
    ] = scratch.split(rows.map(|rows| rows * QUERIES));
    let query_tiles = as_bf16(query_tiles);
    let weights = as_bf16(weights);
    let query = &call.query[head * seq_q * d_head..][..seq_q * d_head];
    let query = Rows::new(&query[queries.start * d_head..queries.end * d_head], d_head);
    let query_layout = Layout::inner_first(d_head);
    query_tiles.fill(bf16::ZERO);
    // Also of padding.
    factors.fill(1.0);
    context_t.fill(0.0);
    // Below every score, and finite: infinity minus infinity would be NaN.
    max.fill(f32::MIN);
    sum.fill(0.0);
    // SAFETY: the caller enabled the instructions; the buffers have the sizes above.
    unsafe {
        right_of_columns(query, query_layout, query_tiles.as_mut_ptr());
        let _state = TileState::<P>::new();
        for tile in call.tiles([example, query_head], row) {
            let keys = tile.keys.range();
            let padded = keys.len().next_multiple_of(BLOCK);
            P::product::<false>(
                [padded, wide_head, QUERIES],
                packed.key.tiles(kv_head, keys.start),
                query_layout.tiles(query_tiles.as_ptr()),
                scores.as_mut_ptr(),
                QUERIES,
            );
            let scale = finish_tile(call, &tile, scores, &mut []);
            if let Some(dropout) = &call.dropout {
                write_dropout_factors(dropout, &tile, factors);
            }
            let size = (padded, scale);
            let stats = [max.as_mut_ptr(), sum.as_mut_ptr()];
            let context = (context_t.as_mut_ptr(), d_value);
            let (from, by, to) = (scores.as_ptr(), factors.as_ptr(), weights.as_mut_ptr());
            if call.has_factors() {
                online_softmax::<true>(size, from, by, stats, context, to);
            } else {
                online_softmax::<false>(size, from, by, stats, context, to);
            }
            P::product::<true>(
                [wide_value, padded, QUERIES],
                packed.value.tiles(kv_head, keys.start),
                BY_KEY.tiles(weights.as_ptr()),
                context_t.as_mut_ptr(),
                QUERIES,
            );
        }
    }

    let mut inverse = [0.0; QUERIES];
    for (i, row) in stats.chunks_exact_mut(STATS).enumerate() {
        row.copy_from_slice(&[max[i], sum[i]]);
        // A fully masked row has a sum of zero and a context of zeros.
        if sum[i] != 0.0 {
            inverse[i] = 1.0 / sum[i];
        }
    }
    let context_t = &mut context_t[..d_value * QUERIES];
    let context_rows = &mut context_rows[..context.len()];
    // SAFETY: the caller enabled the instructions.
    unsafe {
        scale_columns::<Avx512>(context_t, &inverse);
        columns_to_rows::<Avx512>(context_t, context_rows, d_value);
        round_to_bf16(context_rows, context);
    }
}

/// The padded number of elements of a row.
#[inline(always)]
pub(super) fn wide(width: usize) -> usize {
    width.next_multiple_of(BLOCK)
}

/// Applies all options to the dot products of a tile; returns the factor, positive, by which its scores
/// are still to be multiplied. Scores of padding become minus infinity.
///
/// # Safety
///
/// AVX-512 is enabled; `scores` has a row for each key of the tile, padded to whole blocks.
#[inline(always)]
pub(super) unsafe fn finish_tile(
    call: &Call<'_, bf16>,
    tile: &Tile<'_>,
    scores: &mut [f32],
    score_grad: &mut [f32],
) -> f32 {
    let count = tile.keys.len();
    let scale = call.score_scale();
    let padding = count * QUERIES..count.next_multiple_of(BLOCK) * QUERIES;
    let is_plain = tile.is_unmasked() && call.is_plain() && scale > 0.0;
    if !is_plain {
        // SAFETY: the caller enabled the instructions and promises the size of the tile.
        unsafe {
            scale_columns::<Avx512>(&mut scores[..count * QUERIES], &[scale; QUERIES]);
            if !(tile.is_unmasked() && call.is_plain()) {
                finish_scores::<Avx512, _>(call, tile, scores, score_grad);
            }
        }
    }
    scores[padding].fill(f32::NEG_INFINITY);
    if is_plain { scale } else { 1.0 }
}
