//! The gradient of a query tile.

use cubecl::prelude::*;

use super::call::KernelArgs;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position, zero_sums};
use super::score::{
    dropout_factor, dropout_key, finish_scores, inverse_sum, key_tile, load_query_tile, load_run,
    may_mask, weight, write_softcap_grads, zero_if_masked,
};
use super::tile::{add_weighted, matmul_nt, store_sums, store_weights};

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn backward_queries<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_query: &mut [Vector<E, N>],
    #[comptime] blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let sums_len = comptime!(layout.unit_rows * blocks * layout.unit_vec4s);
    let (unit_row, unit_column) = unit_position(layout);
    let query_tile = load_query_tile::<E, N, M>(args);
    let head = &query_tile.head;
    let d_contexts = call
        .d_context
        .matrix(d_context, head.example, head.head, call.seq_q, call.d_value)
        .at(query_tile.first);
    let seq_q = call.seq_q as usize;

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut softcap_grads = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut products = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(rows);
    let mut inverse = Array::<f32>::new(rows);
    let mut delta = Array::<f32>::new(rows);
    let mut sums = zero_sums(sums_len);
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = query_tile.first + unit_row + i * cube_side;
        row_max[i] = 0.0f32;
        inverse[i] = 0.0f32;
        delta[i] = 0.0f32;
        if row < seq_q {
            let index = query_tile.head_index * seq_q + row;
            row_max[i] = stats[2 * index];
            inverse[i] = inverse_sum(stats[2 * index + 1]);
            delta[i] = deltas[index];
        }
        if !is_plain {
            if call.dropout_threshold > 0u32 {
                let row_key = dropout_key(&query_tile.head, row, args.table, call);
                low[i] = row_key.low;
                high[i] = row_key.high;
            }
        }
    }

    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, args.plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
            let keys = query_tile.keys.at(tile.key);
            let values = query_tile.values.at(tile.key);
            matmul_nt::<E, N>(&query_tile.queries, &keys, &mut memory, &mut products);
            write_softcap_grads(&products, &mut softcap_grads, call, is_plain, layout);
            finish_scores::<E, N, M>(args, &tile, &mut products, &mut memory);
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    let prob = weight(products[i * columns + j], row_max[i]) * inverse[i];
                    weights[i * columns + j] = prob;
                }
            }
            matmul_nt::<E, N>(&d_contexts, &values, &mut memory, &mut products);
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    let mut d_weight = products[i * columns + j];
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let key_in = unit_column * 4 + comptime!(layout.column_offset(j));
                            d_weight *= dropout_factor(low[i], high[i], tile.key + key_in, call);
                        }
                    }
                    let mut d_score = weights[i * columns + j] * (d_weight - delta[i]);
                    if !is_plain {
                        if call.softcap > 0.0f32 {
                            d_score *= softcap_grads[i * columns + j];
                        }
                    }
                    products[i * columns + j] = zero_if_masked(d_score, weights[i * columns + j]);
                }
            }
            store_weights::<E>(&mut products, &mut memory);
            let is_masked = may_mask(&tile, call, is_plain);
            add_weighted::<E, N>(&keys, &mut memory, &mut sums, is_masked, blocks);
        }
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    #[unroll]
    for i in 0..sums_len {
        sums[i] *= Vec4::new(call.scale);
    }
    let d_queries = contiguous_rows(query_tile.head_index, call.seq_q, call.d_head);
    store_sums::<E, N>(d_query, &d_queries, query_tile.first, &sums, blocks, layout);
}
