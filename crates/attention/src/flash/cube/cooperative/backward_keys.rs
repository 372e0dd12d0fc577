//! The gradients of a tile of keys and values.

use cubecl::ir::types::matrix::MatrixLayout;
use cubecl::prelude::*;

use super::layout::{VECTOR, row_stride};
use super::rows::{
    CooperativeArgs, Words, add_products, add_weighted, fetch_rows, fetched_len, head_rows,
    load_row_operands, new_weights, note_non_finite, put_rows, remove_non_finite, zero_sums,
};
use super::stage::{Stage, is_visible, lane_column, lane_row, log_sum, row_sum};
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;
use crate::flash::cube::score::{load_run, zero_if_masked};

/// Each cube computes a key tile of a head, query tile by query tile, for all query heads that
/// share it. Rows of a tile are keys, columns are queries.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn backward_keys<E: Float>(
    args: &CooperativeArgs,
    d_context: &[Words],
    stats: &[f32],
    deltas: &[f32],
    d_key: &mut [Words],
    d_value: &mut [Words],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let key_size = comptime!(layout.d_head);
    let value_size = comptime!(layout.d_value);
    let value_offset = comptime!(layout.value_offset());
    let key_stride = comptime!(row_stride(layout.d_head));
    let value_stride = comptime!(row_stride(layout.d_value));
    // In ascending order: with a causal mask the first keys have the most queries.
    let tile_row = CUBE_POS_X as usize;
    let example = CUBE_POS_Z as usize;
    let kv_head = CUBE_POS_Y as usize;
    let group = call.group as usize;
    let kv_heads = call.heads as usize / group;
    let first_head = kv_head * group;
    let seq_q = call.seq_q as usize;
    let seq_k = call.seq_k as usize;
    let unit = UNIT_POS as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let keys = head_rows(&call.key, example, kv_head, call.seq_k);
    let values = head_rows(&call.value, example, kv_head, call.seq_k);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    // What is added to the dot products of each query: the negative log-sum-exp, and the negative
    // delta.
    let mut terms = Shared::<[f32]>::new_aligned_slice(comptime!(2 * layout.columns), 16usize);
    let mut removed_queries = Shared::<[f32]>::new_slice(columns);
    let mut removed_contexts = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let key_operands = load_row_operands::<E>(args.key, &keys, first, &mut tiles, key_size, layout);
    let value_operands =
        load_row_operands::<E>(args.value, &values, first, &mut tiles, value_size, layout);
    let key_sums = zero_sums(comptime!(layout.fragments * layout.d_head / FRAGMENT));
    let value_sums = zero_sums(comptime!(layout.fragments * layout.d_value / FRAGMENT));
    let weight_operands = new_weights::<E>(comptime!(layout.steps() * layout.fragments));
    let d_score_operands = new_weights::<E>(comptime!(layout.steps() * layout.fragments));
    let mut key_added = Array::<f32>::new(fragments);
    let mut value_added = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        key_added[i] = 0.0f32;
        value_added[i] = 0.0f32;
    }

    let index = example * call.plan_example as usize + tile_row;
    let first_run = args.plan[index];
    let end_run = args.plan[index + 1];
    let end_head = select(first_run < end_run, first_head + group, first_head);
    let mut head = first_head;
    let mut run_index = first_run;
    let mut tile = 0u32;
    let mut end_tile = 0u32;
    let mut bitmap = 0usize;
    let mut query_words = Array::<Words>::new(comptime!(fetched_len(columns, key_size, layout)));
    let mut context_words =
        Array::<Words>::new(comptime!(fetched_len(columns, value_size, layout)));
    let mut next_term = 0.0f32;
    let mut next_delta = 0.0f32;
    let mut weights = Array::<f32>::new(VECTOR);
    let mut elements = Array::<f32>::new(VECTOR);
    if head < end_head {
        let run = load_run(run_index, args.plan, call);
        tile = run.first;
        end_tile = run.end;
        bitmap = run.bitmap;
        let query = tile as usize * columns;
        let queries = head_rows(&call.query, example, head, call.seq_q);
        let contexts = head_rows(&call.d_context, example, head, call.seq_q);
        fetch_rows(
            args.query,
            &queries,
            query,
            &mut query_words,
            columns,
            key_size,
            layout,
        );
        fetch_rows(
            d_context,
            &contexts,
            query,
            &mut context_words,
            columns,
            value_size,
            layout,
        );
        if unit < columns && query + unit < seq_q {
            let row = (example * call.heads as usize + head) * seq_q + query + unit;
            next_term = -log_sum(stats[2 * row], stats[2 * row + 1]) / call.scale;
            next_delta = -deltas[row];
        }
    }
    while head < end_head {
        // All planes have read the previous tile.
        sync_cube();
        if bitmap > 0 {
            if unit < columns {
                removed_queries[unit] = 0.0f32;
                removed_contexts[unit] = 0.0f32;
            }
            sync_cube();
            note_non_finite(&query_words, &mut removed_queries, key_size, layout);
            note_non_finite(&context_words, &mut removed_contexts, value_size, layout);
        }
        put_rows(&query_words, &mut tiles, 0usize, columns, key_size, layout);
        put_rows(
            &context_words,
            &mut tiles,
            value_offset,
            columns,
            value_size,
            layout,
        );
        if unit < columns {
            terms[unit] = next_term;
            terms[columns + unit] = next_delta;
        }
        sync_cube();

        let mut next_head = head;
        let mut next_run = run_index;
        let mut next_tile = tile + 1u32;
        let mut next_end = end_tile;
        let mut next_bitmap = bitmap;
        if next_tile == end_tile {
            next_run += 1u32;
            if next_run == end_run {
                next_run = first_run;
                next_head += 1usize;
            }
            let run = load_run(next_run, args.plan, call);
            next_tile = run.first;
            next_end = run.end;
            next_bitmap = run.bitmap;
        }
        if next_head < end_head {
            let query = next_tile as usize * columns;
            let queries = head_rows(&call.query, example, next_head, call.seq_q);
            let contexts = head_rows(&call.d_context, example, next_head, call.seq_q);
            fetch_rows(
                args.query,
                &queries,
                query,
                &mut query_words,
                columns,
                key_size,
                layout,
            );
            fetch_rows(
                d_context,
                &contexts,
                query,
                &mut context_words,
                columns,
                value_size,
                layout,
            );
            next_term = 0.0f32;
            next_delta = 0.0f32;
            if unit < columns && query + unit < seq_q {
                let row = (example * call.heads as usize + next_head) * seq_q + query + unit;
                next_term = -log_sum(stats[2 * row], stats[2 * row + 1]) / call.scale;
                next_delta = -deltas[row];
            }
        }

        #[unroll]
        for step in 0..comptime!(layout.steps()) {
            let scores = zero_sums(fragments);
            let products = zero_sums(fragments);
            let first_term = comptime!(step * FRAGMENT);
            #[unroll]
            for i in 0..fragments {
                // The same row for all keys.
                scores.index(i).load(
                    &terms[first_term..comptime!(2 * layout.columns)],
                    0u32,
                    MatrixLayout::RowMajor,
                );
                products.index(i).load(
                    &terms[comptime!(layout.columns + first_term)..comptime!(2 * layout.columns)],
                    0u32,
                    MatrixLayout::RowMajor,
                );
            }
            let offset = comptime!(step * FRAGMENT * key_stride);
            add_products::<E>(&scores, &key_operands, &tiles, offset, key_size, layout);
            let offset = comptime!(value_offset + step * FRAGMENT * value_stride);
            add_products::<E>(
                &products,
                &value_operands,
                &tiles,
                offset,
                value_size,
                layout,
            );
            #[unroll]
            for i in 0..fragments {
                let weight_operand = weight_operands.index(comptime!(step * fragments + i));
                let d_score_operand = d_score_operands.index(comptime!(step * fragments + i));
                if bitmap == 0 {
                    scores.index(i).exponentiate(call.scale);
                    products.index(i).multiply(scores.index(i));
                    weight_operand.convert::<E>(scores.index(i));
                    d_score_operand.convert::<E>(products.index(i));
                } else {
                    stage.read(scores.index(i), &mut weights);
                    stage.read(products.index(i), &mut elements);
                    #[unroll]
                    for j in 0..VECTOR {
                        let column = comptime!(step * FRAGMENT) + lane_column() + j;
                        let is_visible = is_visible(
                            args.plan,
                            call,
                            bitmap,
                            plane_row + comptime!(i * FRAGMENT) + lane_row(),
                            column,
                            RowAxis::Keys,
                            layout,
                        );
                        let power = (weights[j] * call.scale).exp();
                        let weight = select(is_visible, power, 0.0f32);
                        let d_score = zero_if_masked(weight * elements[j], weight);
                        weights[j] = weight;
                        elements[j] = d_score;
                        let element = removed_contexts[column];
                        if element != 0.0f32 && weight != 0.0f32 {
                            value_added[i] += weight * element;
                        }
                        let element = removed_queries[column];
                        if element != 0.0f32 && d_score != 0.0f32 {
                            key_added[i] += d_score * element;
                        }
                    }
                    stage.write_left::<E>(&weights, weight_operand);
                    stage.write_left::<E>(&elements, d_score_operand);
                }
            }
        }
        if bitmap > 0 {
            sync_cube();
            remove_non_finite(&mut tiles, 0usize, key_size, layout);
            remove_non_finite(&mut tiles, value_offset, value_size, layout);
            sync_cube();
        }
        add_weighted::<E>(
            &value_sums,
            &weight_operands,
            &tiles,
            value_offset,
            value_size,
            layout,
        );
        add_weighted::<E>(
            &key_sums,
            &d_score_operands,
            &tiles,
            0usize,
            key_size,
            layout,
        );
        head = next_head;
        run_index = next_run;
        tile = next_tile;
        end_tile = next_end;
        bitmap = next_bitmap;
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    let mut scales = Array::<f32>::new(fragments);
    let mut ones = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        scales[i] = call.scale;
        ones[i] = 1.0f32;
        key_added[i] = row_sum(key_added[i]);
        value_added[i] = row_sum(value_added[i]);
    }
    let head_row = (example * kv_heads + kv_head) * seq_k;
    let first_row = first + plane_row;
    stage.store_rows::<E>(
        d_key, &key_sums, &scales, &key_added, head_row, first_row, seq_k, key_size, layout,
    );
    stage.store_rows::<E>(
        d_value,
        &value_sums,
        &ones,
        &value_added,
        head_row,
        first_row,
        seq_k,
        value_size,
        layout,
    );
}
