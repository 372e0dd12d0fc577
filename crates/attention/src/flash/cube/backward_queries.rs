//! The gradient of a query tile.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::RowAxis;
use super::layout::Layout;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position};
use super::score::{
    U64, dropout_factor, dropout_key, finish_scores, inverse_sum, key_tile, load_query_tile,
    load_run, may_mask, weight, write_softcap_grads, zero_if_masked,
};
use super::tile::{add_weighted, matmul_nt, store_sums, store_weights};

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn backward_queries<E: Float, N: Size, M: Numeric>(
    query: &[Vector<E, N>],
    key: &[Vector<E, N>],
    value: &[Vector<E, N>],
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    d_query: &mut [Vector<E, N>],
    call: &Call,
    #[comptime] layout: Layout,
    #[comptime] blocks: usize,
    #[comptime] is_plain: bool,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let row_vec4s = comptime!(blocks * layout.unit_vec4s);
    let (unit_row, unit_column) = unit_position(layout);
    let query_tile = load_query_tile(plan, call, layout);
    let d_contexts = call.d_context.rows(
        query_tile.head.example,
        query_tile.head.head,
        call.seq_q,
        call.d_value,
    );
    let seq_q = call.seq_q as usize;

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut softcap_grads = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut products = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(rows);
    let mut inverse = Array::<f32>::new(rows);
    let mut delta = Array::<f32>::new(rows);
    let mut sums = Array::<Vec4>::new(comptime!(layout.unit_rows * blocks * layout.unit_vec4s));
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
        #[unroll]
        for vec4 in 0..row_vec4s {
            sums[i * row_vec4s + vec4] = Vec4::new(0.0f32);
        }
        if !is_plain {
            if call.dropout_threshold > 0u32 {
                let row_key = dropout_key(&query_tile.head, row, table, call);
                low[i] = row_key.low;
                high[i] = row_key.high;
            }
        }
    }

    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile(&query_tile, tile_index, &run, layout);
            matmul_nt::<E, N>(
                query,
                &query_tile.queries,
                tile.query,
                key,
                &query_tile.keys,
                tile.key,
                &mut memory,
                &mut products,
                layout,
            );
            write_softcap_grads(&products, &mut softcap_grads, call, is_plain, layout);
            finish_scores::<E, M>(
                &mut products,
                &query_tile.head,
                &tile,
                &mut memory.full,
                plan,
                table,
                mask,
                bias,
                call,
                RowAxis::Queries,
                is_plain,
                layout,
            );
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    let prob = weight(products[i * columns + j], row_max[i]) * inverse[i];
                    weights[i * columns + j] = prob;
                }
            }
            matmul_nt::<E, N>(
                d_context,
                &d_contexts,
                tile.query,
                value,
                &query_tile.values,
                tile.key,
                &mut memory,
                &mut products,
                layout,
            );
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    let mut d_weight = products[i * columns + j];
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let row_key = U64 {
                                low: low[i],
                                high: high[i],
                            };
                            d_weight *= dropout_factor(
                                &row_key,
                                tile.key + unit_column * 4 + comptime!(layout.column_offset(j)),
                                call,
                            );
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
            store_weights::<E>(&mut products, &mut memory, layout);
            let is_masked = may_mask(&tile, call, is_plain);
            add_weighted::<E, N>(
                key,
                &query_tile.keys,
                tile.key,
                &mut memory,
                &mut sums,
                is_masked,
                blocks,
                layout,
            );
        }
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    #[unroll]
    for i in 0..comptime!(layout.unit_rows * blocks * layout.unit_vec4s) {
        sums[i] *= Vec4::new(call.scale);
    }
    let d_queries = contiguous_rows(query_tile.head_index, call.seq_q, call.d_head);
    store_sums::<E, N>(d_query, &d_queries, query_tile.first, &sums, blocks, layout);
}
