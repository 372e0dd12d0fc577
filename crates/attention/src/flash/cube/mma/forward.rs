//! The forward pass: context, log-sum-exp and softmax statistics of a query tile.

use std::f32::consts::LOG2_E;

use cubecl::prelude::*;

use super::fragment::{Pair, add_matmul, exp2, load_left, matmul_nt, row_max, row_sum, zero_pairs};
use super::layout::FRAGMENT;
use super::shared::sync_tiles;
use super::tile::{
    MmaArgs, add_non_finite, first_key_tile, lane_column, lane_row, mask_queries, new_tiles,
    next_key_tile, remove_non_finite, store_rows,
};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::call::Head;

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn forward<E: Float, N: Size, C: Float>(
    args: &MmaArgs<E, N>,
    context: &mut [Pair<C>],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[define(E)] _dtype: ElemType,
    #[define(C)] _context_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let rows = comptime!(2 * layout.fragments);
    // In descending order: with a causal mask the last queries have the most keys.
    let plan_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let splits = call.splits as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let head_index = (example * call.heads as usize + head) * splits + plan_row % splits;
    let first = plan_row / splits * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let queries = call
        .query
        .matrix(args.query, example, head, call.seq_q, call.d_head);

    let mut key_tiles = new_tiles::<E, N>(d_head, layout);
    let mut value_tiles = new_tiles::<E, N>(d_value, layout);
    let mut removed = Shared::<[f32]>::new_slice(columns);

    let query_rows = load_left::<E, N>(
        &queries.at(first),
        &mut key_tiles,
        plane_row,
        d_head,
        layout,
    );

    // Scaled, if the weights are exact.
    let mut max_scores = Array::<f32>::new(rows);
    let mut sums = Array::<f32>::new(rows);
    let mut contexts = zero_pairs(comptime!(layout.fragments * layout.d_value / 4));
    #[unroll]
    for i in 0..rows {
        max_scores[i] = MASKED_SCORE;
        sums[i] = 0.0f32;
    }
    let factor = select(comptime!(layout.is_exact()), 1.0f32, call.scale) * LOG2_E;

    let mut tiles = first_key_tile::<E, N>(
        args,
        Head { example, head },
        plan_row,
        &mut key_tiles,
        &mut value_tiles,
    );
    while tiles.has_next {
        let tile = next_key_tile::<E, N>(&mut tiles, args, &mut key_tiles, &mut value_tiles);
        let first_row = tile.first_row(layout);
        let mut scores = matmul_nt::<E, N>(&query_rows, &key_tiles, first_row, d_head, layout);
        if comptime!(layout.is_exact()) {
            #[unroll]
            for i in 0..comptime!(layout.fragments * layout.columns / 4) {
                scores[i] *= Pair::<f32>::new(call.scale);
            }
        }
        if tile.bitmap > 0 {
            mask_queries(&mut scores, tile.bitmap, plane_row, args.plan, call, layout);
        }
        #[unroll]
        for fragment in 0..fragments {
            #[unroll]
            for half in 0..2usize {
                let row = comptime!(fragment * 2 + half);
                let mut tile_max = max_scores[row];
                #[unroll]
                for column in 0..comptime!(columns / 8) {
                    let pair = scores[comptime!((fragment * columns / 8 + column) * 2 + half)];
                    tile_max = max(tile_max, max(pair.extract(0usize), pair.extract(1usize)));
                }
                let tile_max = row_max(tile_max);
                // Zero for a row without visible keys, so that the weights of masked keys are zero.
                let maximum = select(tile_max <= MASKED_SCORE, 0.0f32, tile_max);
                let rescale = exp2((max_scores[row] - maximum) * factor);
                max_scores[row] = tile_max;
                let mut sum = sums[row] * rescale;
                #[unroll]
                for column in 0..comptime!(columns / 8) {
                    let index = comptime!((fragment * columns / 8 + column) * 2 + half);
                    let pair = scores[index];
                    let mut weights = Pair::<f32>::new(0.0f32);
                    #[unroll]
                    for j in 0..2usize {
                        let weight = if comptime!(layout.is_exact()) {
                            exp2((pair.extract(j) - maximum) * factor)
                        } else {
                            exp2(fma(pair.extract(j), factor, -maximum * factor))
                        };
                        sum += weight;
                        weights.insert(j, weight);
                    }
                    scores[index] = weights;
                }
                sums[row] = sum;
                #[unroll]
                for column in 0..comptime!(d_value / 8) {
                    let index = comptime!((fragment * d_value / 8 + column) * 2 + half);
                    contexts[index] *= Pair::<f32>::new(rescale);
                }
            }
        }
        if tile.bitmap > 0 {
            remove_non_finite::<E, N>(&mut value_tiles, first_row, &mut removed, d_value, layout);
            sync_tiles(layout);
            add_non_finite(
                &scores,
                &removed,
                &mut contexts,
                fragments,
                columns,
                d_value,
            );
        }
        add_matmul::<E, N>(
            &scores,
            &value_tiles,
            first_row,
            &mut contexts,
            d_value,
            layout,
        );
    }

    let seq_q = call.seq_q as usize;
    let mut inverse_sums = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = first + plane_row + lane_row() + comptime!(i / 2 * FRAGMENT + i % 2 * 8);
        let sum = row_sum(sums[i]);
        let is_masked = max_scores[i] <= MASKED_SCORE;
        let mut row_max = max_scores[i];
        if comptime!(!layout.is_exact()) {
            row_max = select(is_masked, MASKED_SCORE, row_max * call.scale);
        }
        let index = head_index * seq_q + row;
        // For a fully masked row the context is zero, and any positive divisor leaves it.
        let divisor = max(sum, 0.5f32);
        if lane_column() == 0 && row < seq_q {
            stats[2 * index] = row_max;
            stats[2 * index + 1] = sum;
            log_sum_exp[index] = row_max + divisor.ln();
        }
        inverse_sums[i] = 1.0f32 / divisor;
    }
    store_rows::<C>(
        context,
        head_index * seq_q,
        first + plane_row,
        seq_q,
        &contexts,
        &inverse_sums,
        fragments,
        d_value,
    );
}
