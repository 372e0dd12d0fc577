//! The gradients of a tile of keys and values.

use cubecl::prelude::*;

use super::fragment::{Pair, add_matmul, load_left, matmul_nt, zero_pairs};
use super::shared::{sync_tiles, wait_for_copies};
use super::tile::{
    MmaArgs, RowStats, add_non_finite, copy_columns, lane_column, mask_keys, new_tiles,
    remove_non_finite, row_stats, store_rows, weight,
};
use crate::flash::cube::cursor::{advance, first_tile};
use crate::flash::cube::head_parts::head_part;
use crate::flash::cube::memory::Vec4;
use crate::flash::cube::score::zero_if_masked;

#[cube]
fn query_terms(row: &RowStats, delta: f32) -> Vec4 {
    let mut terms = Vec4::new(delta);
    terms.insert(0usize, row.offset);
    terms.insert(1usize, row.inverse_sum);
    terms
}

/// Each cube computes a key tile of a head, query tile by query tile, for [some](head_part) or all of the
/// query heads that share it. Rows of a tile are keys, columns are queries.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn backward_keys<E: Float, N: Size>(
    args: &MmaArgs<E, N>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_key: &mut [Pair<E>],
    d_value: &mut [Pair<E>],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let key_size = comptime!(layout.d_head);
    let value_size = comptime!(layout.d_value);
    // In ascending order: with a causal mask the first keys have the most queries.
    let tile_row = CUBE_POS_X as usize;
    let example = CUBE_POS_Z as usize;
    let part = head_part(call);
    let kv_head = part.kv_head;
    let seq_q = call.seq_q as usize;
    let seq_k = call.seq_k as usize;
    let unit = UNIT_POS as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let keys = call
        .key
        .matrix(args.key, example, kv_head, call.seq_k, call.d_head);
    let values = call
        .value
        .matrix(args.value, example, kv_head, call.seq_k, call.d_value);

    let mut query_tiles = new_tiles::<E, N>(key_size, layout);
    let mut d_context_tiles = new_tiles::<E, N>(value_size, layout);
    // The statistics and the delta of each query, in two stages.
    let mut terms = Shared::<[Vec4]>::new_slice(comptime!(2 * layout.columns));
    let mut removed = Shared::<[f32]>::new_slice(columns);

    let key_rows = load_left::<E, N>(
        &keys.at(first),
        &mut query_tiles,
        plane_row,
        key_size,
        layout,
    );
    let value_rows = load_left::<E, N>(
        &values.at(first),
        &mut d_context_tiles,
        plane_row,
        value_size,
        layout,
    );

    let mut key_sums = zero_pairs(comptime!(layout.fragments * layout.d_head / 4));
    let mut value_sums = zero_pairs(comptime!(layout.fragments * layout.d_value / 4));

    let mut cursor = first_tile(
        example,
        tile_row,
        part.first_head,
        part.heads,
        args.plan,
        call,
    );
    let mut stage = 0usize;
    if cursor.has_tile() {
        let head = cursor.head;
        let query = cursor.tile as usize * columns;
        let queries = call
            .query
            .matrix(args.query, example, head, call.seq_q, call.d_head);
        let d_contexts = call
            .d_context
            .matrix(d_context, example, head, call.seq_q, call.d_value);
        copy_columns::<E, N>(
            &queries.at(query),
            &d_contexts.at(query),
            &mut query_tiles,
            &mut d_context_tiles,
            0usize,
            layout,
        );
        if unit < columns {
            let is_inside = query + unit < seq_q;
            let row = (example * call.heads as usize + head) * seq_q + query + unit;
            let index = select(is_inside, row, 0usize);
            let row = row_stats(stats[2 * index], stats[2 * index + 1], is_inside, layout);
            terms[unit] = query_terms(&row, deltas[index]);
        }
    }
    while cursor.has_tile() {
        let bitmap = advance(&mut cursor, args.plan, call);
        // The other stage has been read by all planes.
        wait_for_copies(0usize, layout);
        let next_stage = 1usize - stage;
        let mut next_max = 0.0f32;
        let mut next_sum = 0.0f32;
        let mut next_delta = 0.0f32;
        let mut is_inside = false;
        if cursor.has_tile() {
            let next_head = cursor.head;
            let query = cursor.tile as usize * columns;
            let queries =
                call.query
                    .matrix(args.query, example, next_head, call.seq_q, call.d_head);
            let d_contexts =
                call.d_context
                    .matrix(d_context, example, next_head, call.seq_q, call.d_value);
            copy_columns::<E, N>(
                &queries.at(query),
                &d_contexts.at(query),
                &mut query_tiles,
                &mut d_context_tiles,
                next_stage,
                layout,
            );
            // Read here and stored below, so that no unit waits for them.
            is_inside = unit < columns && query + unit < seq_q;
            if is_inside {
                let row = (example * call.heads as usize + next_head) * seq_q + query + unit;
                next_max = stats[2 * row];
                next_sum = stats[2 * row + 1];
                next_delta = deltas[row];
            }
        }

        let first_row = stage * columns;
        let mut weights = matmul_nt::<E, N>(&key_rows, &query_tiles, first_row, key_size, layout);
        if bitmap > 0 {
            mask_keys(&mut weights, bitmap, plane_row, args.plan, call, layout);
        }
        let mut d_scores =
            matmul_nt::<E, N>(&value_rows, &d_context_tiles, first_row, value_size, layout);
        #[unroll]
        for column in 0..comptime!(columns / 8) {
            #[unroll]
            for j in 0..2usize {
                let term = terms[first_row + column * 8 + lane_column() + j];
                let row_stats = RowStats {
                    offset: term.extract(0usize),
                    inverse_sum: term.extract(1usize),
                };
                let delta = term.extract(2usize);
                #[unroll]
                for row in 0..comptime!(2 * layout.fragments) {
                    let index = comptime!((row / 2 * columns / 8 + column) * 2 + row % 2);
                    let mut weight_pair = weights[index];
                    let mut d_pair = d_scores[index];
                    let weight = weight(weight_pair.extract(j), &row_stats, call.scale, layout);
                    let d_score = weight * (d_pair.extract(j) - delta);
                    weight_pair.insert(j, weight);
                    d_pair.insert(j, zero_if_masked(d_score, weight));
                    weights[index] = weight_pair;
                    d_scores[index] = d_pair;
                }
            }
        }
        if bitmap > 0 {
            // All planes have read the tiles.
            sync_cube();
            remove_non_finite::<E, N>(
                &mut d_context_tiles,
                first_row,
                &mut removed,
                value_size,
                layout,
            );
            sync_tiles(layout);
            add_non_finite(
                &weights,
                &removed,
                &mut value_sums,
                fragments,
                columns,
                value_size,
            );
            sync_cube();
            remove_non_finite::<E, N>(&mut query_tiles, first_row, &mut removed, key_size, layout);
            sync_tiles(layout);
            add_non_finite(
                &d_scores,
                &removed,
                &mut key_sums,
                fragments,
                columns,
                key_size,
            );
        }
        add_matmul::<E, N>(
            &weights,
            &d_context_tiles,
            first_row,
            &mut value_sums,
            value_size,
            layout,
        );
        add_matmul::<E, N>(
            &d_scores,
            &query_tiles,
            first_row,
            &mut key_sums,
            key_size,
            layout,
        );
        if unit < columns {
            let row = row_stats(next_max, next_sum, is_inside, layout);
            terms[next_stage * columns + unit] = query_terms(&row, next_delta);
        }
        stage = next_stage;
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    let rows = comptime!(2 * layout.fragments);
    let mut scales = Array::<f32>::new(rows);
    let mut ones = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        scales[i] = call.scale;
        ones[i] = 1.0f32;
    }
    let head_row = part.result_head(example) * seq_k;
    let first_row = first + plane_row;
    store_rows::<E>(
        d_key, head_row, first_row, seq_k, &key_sums, &scales, fragments, key_size,
    );
    store_rows::<E>(
        d_value,
        head_row,
        first_row,
        seq_k,
        &value_sums,
        &ones,
        fragments,
        value_size,
    );
}
