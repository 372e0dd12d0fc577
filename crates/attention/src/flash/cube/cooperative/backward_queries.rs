//! The gradient of a query tile.

use cubecl::prelude::*;

use super::layout::VECTOR;
use super::products::{add_products, add_weighted, new_operands, zero_sums};
use super::rows::{
    CooperativeArgs, Fetched, Words, head_rows, load_row_operands, note_non_finite,
    remove_non_finite,
};
use super::stage::{
    Stage, Terms, is_visible, lane_column, lane_row, row_sum, row_terms, weight, with_term,
};
use crate::flash::cube::cursor::{advance, first_tile};
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;
use crate::flash::cube::score::zero_if_masked;

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
    let key_stride = comptime!(layout.row_stride(layout.d_head));
    let value_stride = comptime!(layout.row_stride(layout.d_value));
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let head_index = example * call.heads as usize + head;
    let seq_q = call.seq_q as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let queries = head_rows(&call.query, example, head, call.seq_q, layout);
    let d_contexts = head_rows(&call.d_context, example, head, call.seq_q, layout);
    let keys = head_rows(&call.key, example, kv_head, call.seq_k, layout);
    let values = head_rows(&call.value, example, kv_head, call.seq_k, layout);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    let mut removed = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let query_operands =
        load_row_operands::<E>(args.query, &queries, first, &mut tiles, d_head, layout);
    let d_context_operands =
        load_row_operands::<E>(d_context, &d_contexts, first, &mut tiles, d_value, layout);
    let sums = zero_sums(comptime!(layout.fragments * layout.d_head / FRAGMENT));
    let d_scores = new_operands::<E>(comptime!(layout.steps() * layout.fragments), layout);
    // The terms of each row, with which accumulators start in half precision.
    let score_offsets = zero_sums(comptime!(layout.offsets()));
    let product_offsets = zero_sums(comptime!(layout.offsets()));
    let mut terms = Sequence::<Terms>::new();
    let mut added = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        added[i] = 0.0f32;
        let row = first + plane_row + comptime!(i * FRAGMENT) + lane_row();
        let index = select(row < seq_q, head_index * seq_q + row, 0usize);
        let row_max = stats[2 * index];
        let sum = stats[2 * index + 1];
        let row_terms = row_terms(row_max, sum, deltas[index], call.scale, layout);
        if comptime!(!layout.ty.is_split()) {
            stage.write_row(row_terms.score, score_offsets.index(i));
            stage.write_row(row_terms.product, product_offsets.index(i));
        }
        terms.push(row_terms);
    }

    let mut cursor = first_tile(example, tile_row, head, 1usize, args.plan, call);
    let mut fetched = Fetched::new(layout);
    let mut weights = Array::<f32>::new(VECTOR);
    let mut elements = Array::<f32>::new(VECTOR);
    if cursor.has_tile() {
        let key = cursor.tile as usize * columns;
        fetched.fetch(args.key, &keys, args.value, &values, key, layout);
    }
    while cursor.has_tile() {
        let bitmap = advance(&mut cursor, args.plan, call);
        // All planes have read the previous tile.
        sync_cube();
        if bitmap > 0 {
            if (UNIT_POS as usize) < columns {
                removed[UNIT_POS as usize] = 0.0f32;
            }
            sync_cube();
            note_non_finite(&fetched.first, &mut removed, d_head, layout);
        }
        fetched.put(&mut tiles, layout);
        sync_cube();
        if cursor.has_tile() {
            let key = cursor.tile as usize * columns;
            fetched.fetch(args.key, &keys, args.value, &values, key, layout);
        }

        #[unroll]
        for step in 0..comptime!(layout.steps()) {
            let scores = zero_sums(fragments);
            let products = zero_sums(fragments);
            if comptime!(!layout.ty.is_split()) {
                #[unroll]
                for i in 0..fragments {
                    scores.index(i).assign(score_offsets.index(i));
                    products.index(i).assign(product_offsets.index(i));
                }
            }
            let offset = comptime!(step * FRAGMENT * key_stride);
            add_products::<E>(
                &scores,
                &query_operands,
                &tiles,
                offset,
                d_head,
                RowAxis::Queries,
                layout,
            );
            let offset = comptime!(value_offset + step * FRAGMENT * value_stride);
            add_products::<E>(
                &products,
                &d_context_operands,
                &tiles,
                offset,
                d_value,
                RowAxis::Queries,
                layout,
            );
            #[unroll]
            for i in 0..fragments {
                let index = comptime!(step * fragments + i);
                let mut is_staged = bitmap > 0;
                if comptime!(layout.ty.is_split()) {
                    is_staged = true;
                } else if bitmap == 0 {
                    scores.index(i).exponentiate(call.scale);
                    products.index(i).multiply(scores.index(i));
                    d_scores.index(index).convert::<E>(products.index(i));
                }
                if is_staged {
                    stage.read(scores.index(i), &mut weights);
                    stage.read(products.index(i), &mut elements);
                    let terms = terms.index(i);
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
                        let power = weight(weights[j], terms, call.scale, layout);
                        let weight = select(is_visible, power, 0.0f32);
                        let product = with_term(elements[j], terms, layout);
                        let d_score = zero_if_masked(weight * product, weight);
                        elements[j] = d_score;
                        if bitmap > 0 {
                            let element = removed[column];
                            if element != 0.0f32 && d_score != 0.0f32 {
                                added[i] += d_score * element;
                            }
                        }
                    }
                    stage.write_left::<E>(&mut elements, &d_scores, index, comptime!(layout.ty));
                }
            }
        }
        if bitmap > 0 {
            sync_cube();
            remove_non_finite(&mut tiles, 0usize, d_head, layout);
            sync_cube();
        }
        add_weighted::<E>(&sums, &d_scores, &tiles, 0usize, d_head, layout);
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
