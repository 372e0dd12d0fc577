//! The gradient of a query tile.

use cubecl::prelude::*;

use super::fragment::{Pair, add_matmul, load_left, matmul_nt, zero_pairs};
use super::layout::FRAGMENT;
use super::shared::sync_tiles;
use super::tile::{
    MmaArgs, RowStats, add_non_finite, first_key_tile, lane_row, mask_queries, new_tiles,
    next_key_tile, remove_non_finite, row_stats, store_rows, weight,
};
use crate::flash::cube::call::Head;
use crate::flash::cube::score::zero_if_masked;

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn backward_queries<E: Float, N: Size>(
    args: &MmaArgs<E, N>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_query: &mut [Pair<E>],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let rows = comptime!(2 * layout.fragments);
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let head_index = example * call.heads as usize + head;
    let seq_q = call.seq_q as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let queries = call
        .query
        .matrix(args.query, example, head, call.seq_q, call.d_head);
    let d_contexts = call
        .d_context
        .matrix(d_context, example, head, call.seq_q, call.d_value);

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
    let d_context_rows = load_left::<E, N>(
        &d_contexts.at(first),
        &mut value_tiles,
        plane_row,
        d_value,
        layout,
    );

    let mut sums = zero_pairs(comptime!(layout.fragments * layout.d_head / 4));
    let mut offsets = Array::<f32>::new(rows);
    let mut inverse_sums = Array::<f32>::new(rows);
    let mut row_deltas = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = first + plane_row + lane_row() + comptime!(i / 2 * FRAGMENT + i % 2 * 8);
        let is_inside = row < seq_q;
        let index = select(is_inside, head_index * seq_q + row, 0usize);
        let row = row_stats(stats[2 * index], stats[2 * index + 1], is_inside, layout);
        offsets[i] = row.offset;
        inverse_sums[i] = row.inverse_sum;
        row_deltas[i] = deltas[index];
    }

    let mut tiles = first_key_tile::<E, N>(
        args,
        Head { example, head },
        tile_row,
        &mut key_tiles,
        &mut value_tiles,
    );
    while tiles.has_next {
        let tile = next_key_tile::<E, N>(&mut tiles, args, &mut key_tiles, &mut value_tiles);
        let first_row = tile.first_row(layout);
        let mut weights = matmul_nt::<E, N>(&query_rows, &key_tiles, first_row, d_head, layout);
        if tile.bitmap > 0 {
            mask_queries(
                &mut weights,
                tile.bitmap,
                plane_row,
                args.plan,
                call,
                layout,
            );
        }
        let d_weights =
            matmul_nt::<E, N>(&d_context_rows, &value_tiles, first_row, d_value, layout);
        #[unroll]
        for fragment in 0..fragments {
            #[unroll]
            for half in 0..2usize {
                let row = comptime!(fragment * 2 + half);
                #[unroll]
                for column in 0..comptime!(columns / 8) {
                    let index = comptime!((fragment * columns / 8 + column) * 2 + half);
                    let scores = weights[index];
                    let row_stats = RowStats {
                        offset: offsets[row],
                        inverse_sum: inverse_sums[row],
                    };
                    let d_pair = d_weights[index];
                    let mut d_scores = Pair::<f32>::new(0.0f32);
                    #[unroll]
                    for j in 0..2usize {
                        let weight = weight(scores.extract(j), &row_stats, call.scale, layout);
                        let d_score = weight * (d_pair.extract(j) - row_deltas[row]);
                        d_scores.insert(j, zero_if_masked(d_score, weight));
                    }
                    weights[index] = d_scores;
                }
            }
        }
        if tile.bitmap > 0 {
            // All planes have read the keys.
            sync_cube();
            remove_non_finite::<E, N>(&mut key_tiles, first_row, &mut removed, d_head, layout);
            sync_tiles(layout);
            add_non_finite(&weights, &removed, &mut sums, fragments, columns, d_head);
        }
        add_matmul::<E, N>(&weights, &key_tiles, first_row, &mut sums, d_head, layout);
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    let mut scales = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        scales[i] = call.scale;
    }
    store_rows::<E>(
        d_query,
        head_index * seq_q,
        first + plane_row,
        seq_q,
        &sums,
        &scales,
        fragments,
        d_head,
    );
}
