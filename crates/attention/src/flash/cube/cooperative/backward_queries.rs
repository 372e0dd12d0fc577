//! The gradient of a query tile.

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

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn backward_queries<E: Float>(
    args: &CooperativeArgs,
    d_context: &[Words],
    stats: &[f32],
    deltas: &[f32],
    d_query: &mut [Words],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let value_offset = comptime!(layout.value_offset());
    let key_stride = comptime!(row_stride(layout.d_head));
    let value_stride = comptime!(row_stride(layout.d_value));
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let head_index = example * call.heads as usize + head;
    let seq_q = call.seq_q as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let queries = head_rows(&call.query, example, head, call.seq_q);
    let d_contexts = head_rows(&call.d_context, example, head, call.seq_q);
    let keys = head_rows(&call.key, example, kv_head, call.seq_k);
    let values = head_rows(&call.value, example, kv_head, call.seq_k);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    let mut removed = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let query_operands =
        load_row_operands::<E>(args.query, &queries, first, &mut tiles, d_head, layout);
    let d_context_operands =
        load_row_operands::<E>(d_context, &d_contexts, first, &mut tiles, d_value, layout);
    let sums = zero_sums(comptime!(layout.fragments * layout.d_head / FRAGMENT));
    let d_scores = new_weights::<E>(comptime!(layout.steps() * layout.fragments));
    // What is subtracted from the dot products of a row: the log-sum-exp, and the delta.
    let score_offsets = zero_sums(fragments);
    let weight_offsets = zero_sums(fragments);
    let mut added = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        added[i] = 0.0f32;
        let row = first + plane_row + comptime!(i * FRAGMENT) + lane_row();
        let index = select(row < seq_q, head_index * seq_q + row, 0usize);
        let log_sum = log_sum(stats[2 * index], stats[2 * index + 1]);
        stage.write_row(-log_sum / call.scale, score_offsets.index(i));
        stage.write_row(-deltas[index], weight_offsets.index(i));
    }

    let index = example * call.plan_example as usize + tile_row;
    let end_run = args.plan[index + 1];
    let mut run_index = args.plan[index];
    let mut tile = 0u32;
    let mut end_tile = 0u32;
    let mut bitmap = 0usize;
    let mut key_words = Array::<Words>::new(comptime!(fetched_len(columns, d_head, layout)));
    let mut value_words = Array::<Words>::new(comptime!(fetched_len(columns, d_value, layout)));
    let mut weights = Array::<f32>::new(VECTOR);
    let mut elements = Array::<f32>::new(VECTOR);
    if run_index < end_run {
        let run = load_run(run_index, args.plan, call);
        tile = run.first;
        end_tile = run.end;
        bitmap = run.bitmap;
        let key = tile as usize * columns;
        fetch_rows(
            args.key,
            &keys,
            key,
            &mut key_words,
            columns,
            d_head,
            layout,
        );
        fetch_rows(
            args.value,
            &values,
            key,
            &mut value_words,
            columns,
            d_value,
            layout,
        );
    }
    while run_index < end_run {
        // All planes have read the previous tile.
        sync_cube();
        if bitmap > 0 {
            if (UNIT_POS as usize) < columns {
                removed[UNIT_POS as usize] = 0.0f32;
            }
            sync_cube();
            note_non_finite(&key_words, &mut removed, d_head, layout);
        }
        put_rows(&key_words, &mut tiles, 0usize, columns, d_head, layout);
        put_rows(
            &value_words,
            &mut tiles,
            value_offset,
            columns,
            d_value,
            layout,
        );
        sync_cube();

        let mut next_run = run_index;
        let mut next_tile = tile + 1u32;
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
        if next_run < end_run {
            let key = next_tile as usize * columns;
            fetch_rows(
                args.key,
                &keys,
                key,
                &mut key_words,
                columns,
                d_head,
                layout,
            );
            fetch_rows(
                args.value,
                &values,
                key,
                &mut value_words,
                columns,
                d_value,
                layout,
            );
        }

        #[unroll]
        for step in 0..comptime!(layout.steps()) {
            let scores = zero_sums(fragments);
            let products = zero_sums(fragments);
            #[unroll]
            for i in 0..fragments {
                scores.index(i).assign(score_offsets.index(i));
                products.index(i).assign(weight_offsets.index(i));
            }
            let offset = comptime!(step * FRAGMENT * key_stride);
            add_products::<E>(&scores, &query_operands, &tiles, offset, d_head, layout);
            let offset = comptime!(value_offset + step * FRAGMENT * value_stride);
            add_products::<E>(
                &products,
                &d_context_operands,
                &tiles,
                offset,
                d_value,
                layout,
            );
            #[unroll]
            for i in 0..fragments {
                let operand = d_scores.index(comptime!(step * fragments + i));
                if bitmap == 0 {
                    scores.index(i).exponentiate(call.scale);
                    products.index(i).multiply(scores.index(i));
                    operand.convert::<E>(products.index(i));
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
                            RowAxis::Queries,
                            layout,
                        );
                        let power = (weights[j] * call.scale).exp();
                        let weight = select(is_visible, power, 0.0f32);
                        let d_score = zero_if_masked(weight * elements[j], weight);
                        elements[j] = d_score;
                        let element = removed[column];
                        if element != 0.0f32 && d_score != 0.0f32 {
                            added[i] += d_score * element;
                        }
                    }
                    stage.write_left::<E>(&elements, operand);
                }
            }
        }
        if bitmap > 0 {
            sync_cube();
            remove_non_finite(&mut tiles, 0usize, d_head, layout);
            sync_cube();
        }
        add_weighted::<E>(&sums, &d_scores, &tiles, 0usize, d_head, layout);
        run_index = next_run;
        tile = next_tile;
        end_tile = next_end;
        bitmap = next_bitmap;
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    let mut scales = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        scales[i] = call.scale;
        added[i] = row_sum(added[i]);
    }
    stage.store_rows::<E>(
        d_query,
        &sums,
        &scales,
        &added,
        head_index * seq_q,
        first + plane_row,
        seq_q,
        d_head,
        layout,
    );
}
