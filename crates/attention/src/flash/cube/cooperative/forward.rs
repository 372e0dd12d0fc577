//! The forward pass: context, log-sum-exp and softmax statistics of a query tile.

use cubecl::prelude::*;

use super::products::{add_weighted, new_operands, zero_sums};
use super::rows::{
    CooperativeArgs, Fetched, Words, head_rows, load_row_operands, note_non_finite,
    remove_non_finite,
};
use super::stage::{Stage, lane_column, lane_row, row_sum};
use super::weights::{Softmax, write_exact_weights, write_split_weights, write_weights};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::cursor::{advance, first_tile};
use crate::flash::cube::layout::FRAGMENT;

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(in crate::flash::cube) fn forward<E: Float>(
    args: &CooperativeArgs,
    context: &mut [Words],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[define(E)] _dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let value_offset = comptime!(layout.value_offset());
    // In descending order: with a causal mask the last queries have the most keys.
    let tile_row = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let head_index = example * call.heads as usize + head;
    let first = tile_row * comptime!(layout.tile_m());
    let queries = head_rows(&call.query, example, head, call.seq_q, layout);
    let keys = head_rows(&call.key, example, kv_head, call.seq_k, layout);
    let values = head_rows(&call.value, example, kv_head, call.seq_k, layout);

    let mut tiles = Shared::<[Words]>::new_aligned_slice(comptime!(layout.tiles_len()), 16usize);
    let mut removed = Shared::<[f32]>::new_slice(columns);
    let mut stage = Stage::new(comptime!(layout.planes));
    let operands = load_row_operands::<E>(args.query, &queries, first, &mut tiles, d_head, layout);
    let mut softmax = Softmax {
        reference: Array::<f32>::new(fragments),
        sums: Array::<f32>::new(fragments),
        tile_sums: Array::<f32>::new(fragments),
        added: Array::<f32>::new(fragments),
        offsets: zero_sums(comptime!(layout.offsets())),
        weights: new_operands::<E>(comptime!(layout.steps() * layout.fragments), layout),
        contexts: zero_sums(comptime!(layout.fragments * layout.d_value / FRAGMENT)),
    };
    #[unroll]
    for i in 0..fragments {
        softmax.reference[i] = 0.0f32;
        softmax.sums[i] = 0.0f32;
        softmax.tile_sums[i] = 0.0f32;
        softmax.added[i] = 0.0f32;
    }

    let mut cursor = first_tile(example, tile_row, head, 1usize, args.plan, call);
    let mut fetched = Fetched::new(layout);
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
            note_non_finite(&fetched.second, &mut removed, d_value, layout);
        }
        fetched.put(&mut tiles, layout);
        sync_cube();
        if cursor.has_tile() {
            let key = cursor.tile as usize * columns;
            fetched.fetch(args.key, &keys, args.value, &values, key, layout);
        }

        if comptime!(layout.ty.is_split()) {
            write_split_weights::<E>(
                &mut softmax,
                &operands,
                &tiles,
                &removed,
                &mut stage,
                bitmap,
                args,
            );
        } else {
            let mut is_exact = bitmap > 0;
            if bitmap == 0 {
                is_exact = write_weights::<E>(&mut softmax, &operands, &tiles, &mut stage, args);
            }
            if is_exact {
                write_exact_weights::<E>(
                    &mut softmax,
                    &operands,
                    &tiles,
                    &removed,
                    &mut stage,
                    bitmap,
                    args,
                );
            }
        }
        #[unroll]
        for i in 0..fragments {
            softmax.sums[i] += softmax.tile_sums[i];
        }
        if bitmap > 0 {
            sync_cube();
            remove_non_finite(&mut tiles, value_offset, d_value, layout);
            sync_cube();
        }
        add_weighted::<E>(
            &softmax.contexts,
            &softmax.weights,
            &tiles,
            value_offset,
            d_value,
            layout,
        );
    }

    let seq_q = call.seq_q as usize;
    let plane_row = first + PLANE_POS as usize * comptime!(layout.plane_rows());
    let mut inverse_sums = Array::<f32>::new(fragments);
    #[unroll]
    for i in 0..fragments {
        let row = plane_row + comptime!(i * FRAGMENT) + lane_row();
        let sum = softmax.sums[i];
        let scaled = softmax.reference[i] * call.scale;
        let row_max = select(sum == 0.0f32, MASKED_SCORE, scaled);
        // For a fully masked row the context is zero, and any positive divisor leaves it.
        let divisor = select(sum == 0.0f32, 1.0f32, sum);
        let index = head_index * seq_q + row;
        if lane_column() == 0 && row < seq_q {
            stats[2 * index] = row_max;
            stats[2 * index + 1] = sum;
            log_sum_exp[index] = row_max + divisor.ln();
        }
        inverse_sums[i] = 1.0f32 / divisor;
        softmax.added[i] = row_sum(softmax.added[i]);
    }
    stage.store_rows::<E>(
        context,
        &softmax.contexts,
        &inverse_sums,
        &softmax.added,
        head_index * seq_q,
        plane_row,
        seq_q,
        d_value,
        layout,
    );
}
