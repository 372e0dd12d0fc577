//! The gradients of a tile of keys and values.

use cubecl::ir::types::matrix::MatrixLayout;
use cubecl::prelude::*;

use super::layout::{TERMS, VECTOR};
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
use crate::flash::cube::head_parts::head_part;
use crate::flash::cube::layout::FRAGMENT;
use crate::flash::cube::score::zero_if_masked;

/// Each cube computes a key tile of a head, query tile by query tile, for [some](head_part) or all of the
/// query heads that share it. Rows of a tile are keys, columns are queries.
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
    let key_stride = comptime!(layout.row_stride(layout.d_head));
    let value_stride = comptime!(layout.row_stride(layout.d_value));
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
    let keys = head_rows(&call.key, example, kv_head, call.seq_k, layout);
    let values = head_rows(&call.value, example, kv_head, call.seq_k, layout);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    // The terms of each query: those of scores, those of products, and the factors.
    let mut terms = Shared::<[f32]>::new_aligned_slice(comptime!(TERMS * layout.columns), 16usize);
    let mut removed_queries = Shared::<[f32]>::new_slice(columns);
    let mut removed_contexts = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let key_operands = load_row_operands::<E>(args.key, &keys, first, &mut tiles, key_size, layout);
    let value_operands =
        load_row_operands::<E>(args.value, &values, first, &mut tiles, value_size, layout);
    let key_sums = zero_sums(comptime!(layout.fragments * layout.d_head / FRAGMENT));
    let value_sums = zero_sums(comptime!(layout.fragments * layout.d_value / FRAGMENT));
    let weight_operands = new_operands::<E>(comptime!(layout.steps() * layout.fragments), layout);
    let d_score_operands = new_operands::<E>(comptime!(layout.steps() * layout.fragments), layout);
    let mut key_added = Array::<f32>::new(fragments);
    let mut value_added = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        key_added[i] = 0.0f32;
        value_added[i] = 0.0f32;
    }

    let mut cursor = first_tile(
        example,
        tile_row,
        part.first_head,
        part.heads,
        args.plan,
        call,
    );
    let mut fetched = Fetched::new(layout);
    let mut next_max = 0.0f32;
    let mut next_sum = 0.0f32;
    let mut next_delta = 0.0f32;
    let mut weights = Array::<f32>::new(VECTOR);
    let mut elements = Array::<f32>::new(VECTOR);
    if cursor.has_tile() {
        let head = cursor.head;
        let query = cursor.tile as usize * columns;
        let queries = head_rows(&call.query, example, head, call.seq_q, layout);
        let contexts = head_rows(&call.d_context, example, head, call.seq_q, layout);
        fetched.fetch(args.query, &queries, d_context, &contexts, query, layout);
        if unit < columns && query + unit < seq_q {
            let row = (example * call.heads as usize + head) * seq_q + query + unit;
            next_max = stats[2 * row];
            next_sum = stats[2 * row + 1];
            next_delta = deltas[row];
        }
    }
    while cursor.has_tile() {
        let bitmap = advance(&mut cursor, args.plan, call);
        // All planes have read the previous tile.
        sync_cube();
        if bitmap > 0 {
            if unit < columns {
                removed_queries[unit] = 0.0f32;
                removed_contexts[unit] = 0.0f32;
            }
            sync_cube();
            note_non_finite(&fetched.first, &mut removed_queries, key_size, layout);
            note_non_finite(&fetched.second, &mut removed_contexts, value_size, layout);
        }
        fetched.put(&mut tiles, layout);
        if unit < columns {
            let row = row_terms(next_max, next_sum, next_delta, call.scale, layout);
            terms[unit] = row.score;
            terms[columns + unit] = row.product;
            terms[2 * columns + unit] = row.factor;
        }
        sync_cube();

        if cursor.has_tile() {
            let head = cursor.head;
            let query = cursor.tile as usize * columns;
            let queries = head_rows(&call.query, example, head, call.seq_q, layout);
            let contexts = head_rows(&call.d_context, example, head, call.seq_q, layout);
            fetched.fetch(args.query, &queries, d_context, &contexts, query, layout);
            next_max = 0.0f32;
            next_sum = 0.0f32;
            next_delta = 0.0f32;
            if unit < columns && query + unit < seq_q {
                let row = (example * call.heads as usize + head) * seq_q + query + unit;
                next_max = stats[2 * row];
                next_sum = stats[2 * row + 1];
                next_delta = deltas[row];
            }
        }

        #[unroll]
        for step in 0..comptime!(layout.steps()) {
            let scores = zero_sums(fragments);
            let products = zero_sums(fragments);
            let first_term = comptime!(step * FRAGMENT);
            if comptime!(!layout.ty.is_split()) {
                let end = comptime!(TERMS * layout.columns);
                let first_product = comptime!(layout.columns + first_term);
                #[unroll]
                for i in 0..fragments {
                    // The same row for all keys.
                    let order = comptime!(MatrixLayout::RowMajor);
                    scores.index(i).load(&terms[first_term..end], 0u32, order);
                    products
                        .index(i)
                        .load(&terms[first_product..end], 0u32, order);
                }
            }
            let offset = comptime!(step * FRAGMENT * key_stride);
            add_products::<E>(
                &scores,
                &key_operands,
                &tiles,
                offset,
                key_size,
                RowAxis::Keys,
                layout,
            );
            let offset = comptime!(value_offset + step * FRAGMENT * value_stride);
            add_products::<E>(
                &products,
                &value_operands,
                &tiles,
                offset,
                value_size,
                RowAxis::Keys,
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
                    weight_operands.index(index).convert::<E>(scores.index(i));
                    d_score_operands
                        .index(index)
                        .convert::<E>(products.index(i));
                }
                if is_staged {
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
                        let terms = Terms {
                            score: terms[column],
                            product: terms[columns + column],
                            factor: terms[2 * columns + column],
                        };
                        let power = weight(weights[j], &terms, call.scale, layout);
                        let weight = select(is_visible, power, 0.0f32);
                        let product = with_term(elements[j], &terms, layout);
                        let d_score = zero_if_masked(weight * product, weight);
                        weights[j] = weight;
                        elements[j] = d_score;
                        if bitmap > 0 {
                            let element = removed_contexts[column];
                            if element != 0.0f32 && weight != 0.0f32 {
                                value_added[i] += weight * element;
                            }
                            let element = removed_queries[column];
                            if element != 0.0f32 && d_score != 0.0f32 {
                                key_added[i] += d_score * element;
                            }
                        }
                    }
                    let ty = comptime!(layout.ty);
                    stage.write_left::<E>(&mut weights, &weight_operands, index, ty);
                    stage.write_left::<E>(&mut elements, &d_score_operands, index, ty);
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
    let head_row = part.result_head(example) * seq_k;
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
