//! The gradient of a query tile.

use std::f32::consts::LOG2_E;

use cubecl::prelude::*;

use super::fragment::{
    Pair, add_matmul, commit_copies, copy_rows, exp2, load_left_operands, matmul_nt, new_mma,
    wait_for_copies, zero_pairs,
};
use super::layout::{FRAGMENT, row_stride};
use super::tile::{MmaArgs, add_non_finite, lane_row, mask_queries, remove_non_finite, store_rows};
use crate::flash::cube::mma::backward_keys::log2_sum_exp;
use crate::flash::cube::score::{load_run, zero_if_masked};

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
    let units = comptime!(layout.units());
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let tile_m = comptime!(layout.tile_m());
    let rows = comptime!(2 * layout.fragments);
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let head_index = example * call.heads as usize + head;
    let seq_q = call.seq_q as usize;
    let first = tile_row * tile_m;
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let queries = call
        .query
        .matrix(args.query, example, head, call.seq_q, call.d_head);
    let d_contexts = call
        .d_context
        .matrix(d_context, example, head, call.seq_q, call.d_value);
    let keys = call
        .key
        .matrix(args.key, example, kv_head, call.seq_k, call.d_head);
    let values = call
        .value
        .matrix(args.value, example, kv_head, call.seq_k, call.d_value);

    let mma = new_mma::<E>();
    let mut key_tiles = Shared::<[Vector<E, N>]>::new_aligned_slice(
        comptime!(layout.stage_len(layout.d_head)),
        16usize,
    );
    let mut value_tiles = Shared::<[Vector<E, N>]>::new_aligned_slice(
        comptime!(layout.stage_len(layout.d_value)),
        16usize,
    );
    let mut removed = Shared::<[f32]>::new_slice(columns);

    copy_rows::<E, N>(
        &queries.at(first),
        &mut key_tiles,
        0usize,
        tile_m,
        d_head,
        units,
    );
    copy_rows::<E, N>(
        &d_contexts.at(first),
        &mut value_tiles,
        0usize,
        tile_m,
        d_value,
        units,
    );
    commit_copies();
    wait_for_copies(0usize);
    let query_operands = load_left_operands::<E, N>(&mma, &key_tiles, plane_row, fragments, d_head);
    let d_context_operands =
        load_left_operands::<E, N>(&mma, &value_tiles, plane_row, fragments, d_value);
    sync_cube();

    let mut sums = zero_pairs(comptime!(layout.fragments * layout.d_head / 4));
    let mut offsets = Array::<f32>::new(rows);
    let mut row_deltas = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = first + plane_row + lane_row() + comptime!(i / 2 * FRAGMENT + i % 2 * 8);
        let is_inside = row < seq_q;
        let index = select(is_inside, head_index * seq_q + row, 0usize);
        offsets[i] = log2_sum_exp(stats[2 * index], stats[2 * index + 1], is_inside);
        row_deltas[i] = deltas[index];
    }
    let factor = call.scale * LOG2_E;

    let index = example * call.plan_example as usize + tile_row;
    let mut run_index = args.plan[index];
    let end_run = args.plan[index + 1];
    let mut tile_index = 0u32;
    let mut end_tile = 0u32;
    let mut bitmap = 0usize;
    let mut stage = 0usize;
    if run_index < end_run {
        let run = load_run(run_index, args.plan, call);
        tile_index = run.first;
        end_tile = run.end;
        bitmap = run.bitmap;
        let key = tile_index as usize * columns;
        copy_rows::<E, N>(
            &keys.at(key),
            &mut key_tiles,
            0usize,
            columns,
            d_head,
            units,
        );
        copy_rows::<E, N>(
            &values.at(key),
            &mut value_tiles,
            0usize,
            columns,
            d_value,
            units,
        );
        commit_copies();
    }
    while run_index < end_run {
        let mut next_run = run_index;
        let mut next_tile = tile_index + 1u32;
        let mut next_end = end_tile;
        let mut next_bitmap = bitmap;
        if next_tile == end_tile {
            next_run += 1u32;
            if next_run < end_run {
                let run = load_run(next_run, args.plan, call);
                next_tile = run.first;
                next_end = run.end;
                next_bitmap = run.bitmap;
            }
        }
        // The other stage has been read by all planes.
        wait_for_copies(0usize);
        let next_stage = 1usize - stage;
        if next_run < end_run {
            let key = next_tile as usize * columns;
            let offset = next_stage * columns * comptime!(row_stride(layout.d_head));
            copy_rows::<E, N>(
                &keys.at(key),
                &mut key_tiles,
                offset,
                columns,
                d_head,
                units,
            );
            let offset = next_stage * columns * comptime!(row_stride(layout.d_value));
            copy_rows::<E, N>(
                &values.at(key),
                &mut value_tiles,
                offset,
                columns,
                d_value,
                units,
            );
            commit_copies();
        }

        let first_row = stage * columns;
        let mut weights = matmul_nt::<E, N>(
            &mma,
            &query_operands,
            &key_tiles,
            first_row,
            fragments,
            columns,
            d_head,
        );
        if bitmap > 0 {
            mask_queries(&mut weights, bitmap, plane_row, args.plan, call, layout);
        }
        let d_weights = matmul_nt::<E, N>(
            &mma,
            &d_context_operands,
            &value_tiles,
            first_row,
            fragments,
            columns,
            d_value,
        );
        #[unroll]
        for fragment in 0..fragments {
            #[unroll]
            for half in 0..2usize {
                let row = comptime!(fragment * 2 + half);
                #[unroll]
                for column in 0..comptime!(columns / 8) {
                    let index = comptime!((fragment * columns / 8 + column) * 2 + half);
                    let scores = weights[index];
                    let d_pair = d_weights[index];
                    let mut d_scores = Pair::<f32>::new(0.0f32);
                    #[unroll]
                    for j in 0..2usize {
                        let weight = exp2(fma(scores.extract(j), factor, -offsets[row]));
                        let d_score = weight * (d_pair.extract(j) - row_deltas[row]);
                        d_scores.insert(j, zero_if_masked(d_score, weight));
                    }
                    weights[index] = d_scores;
                }
            }
        }
        if bitmap > 0 {
            // All planes have read the keys.
            sync_cube();
            remove_non_finite::<E, N>(&mut key_tiles, first_row, &mut removed, columns, d_head);
            sync_cube();
            add_non_finite(&weights, &removed, &mut sums, fragments, columns, d_head);
        }
        add_matmul::<E, N>(
            &mma, &weights, &key_tiles, first_row, &mut sums, fragments, columns, d_head,
        );
        run_index = next_run;
        tile_index = next_tile;
        end_tile = next_end;
        bitmap = next_bitmap;
        stage = next_stage;
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
