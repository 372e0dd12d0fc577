//! The forward pass: context, log-sum-exp and softmax statistics of a query tile.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::RowAxis;
use super::layout::Layout;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position};
use super::score::{
    U64, dropout_factor, dropout_key, finish_scores, key_tile, load_query_tile, load_run, may_mask,
    weight,
};
use super::tile::{add_weighted, matmul_nt, reduce_rows, store_sums, store_weights};
use crate::flash::call::MASKED_SCORE;

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn forward<E: Float, N: Size, M: Numeric>(
    query: &[Vector<E, N>],
    key: &[Vector<E, N>],
    value: &[Vector<E, N>],
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    context: &mut [Vector<E, N>],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
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

    let mut memory = SharedMemory::<E>::new(layout);
    let mut scores = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(rows);
    let mut new_max = Array::<f32>::new(rows);
    let mut sum = Array::<f32>::new(rows);
    let mut sums = Array::<Vec4>::new(comptime!(layout.unit_rows * blocks * layout.unit_vec4s));
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        row_max[i] = MASKED_SCORE;
        sum[i] = 0.0f32;
        if !is_plain {
            if call.dropout_threshold > 0u32 {
                let row_key = dropout_key(
                    &query_tile.head,
                    query_tile.first + unit_row + i * cube_side,
                    table,
                    call,
                );
                low[i] = row_key.low;
                high[i] = row_key.high;
            }
        }
        #[unroll]
        for vec4 in 0..row_vec4s {
            sums[i * row_vec4s + vec4] = Vec4::new(0.0f32);
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
                &mut scores,
                layout,
            );
            finish_scores::<E, M>(
                &mut scores,
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
                let mut tile_max = row_max[i];
                #[unroll]
                for j in 0..columns {
                    tile_max = max(tile_max, scores[i * columns + j]);
                }
                new_max[i] = tile_max;
            }
            reduce_rows(&mut new_max, &mut memory.full, false, layout);
            #[unroll]
            for i in 0..rows {
                let rescale = (row_max[i] - new_max[i]).exp();
                row_max[i] = new_max[i];
                let mut total = sum[i] * rescale;
                #[unroll]
                for j in 0..columns {
                    let mut weight = weight(scores[i * columns + j], row_max[i]);
                    total += weight;
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let row_key = U64 {
                                low: low[i],
                                high: high[i],
                            };
                            weight *= dropout_factor(
                                &row_key,
                                tile.key + unit_column * 4 + comptime!(layout.column_offset(j)),
                                call,
                            );
                        }
                    }
                    scores[i * columns + j] = weight;
                }
                sum[i] = total;
                #[unroll]
                for vec4 in 0..row_vec4s {
                    sums[i * row_vec4s + vec4] *= Vec4::new(rescale);
                }
            }
            store_weights::<E>(&mut scores, &mut memory, layout);
            let is_masked = may_mask(&tile, call, is_plain);
            add_weighted::<E, N>(
                value,
                &query_tile.values,
                tile.key,
                &mut memory,
                &mut sums,
                is_masked,
                blocks,
                layout,
            );
        }
    }

    reduce_rows(&mut sum, &mut memory.full, true, layout);
    let seq_q = call.seq_q as usize;
    let contexts = contiguous_rows(query_tile.head_index, call.seq_q, call.d_value);
    #[unroll]
    for i in 0..rows {
        let row = query_tile.first + unit_row + i * cube_side;
        let index = query_tile.head_index * seq_q + row;
        if unit_column == 0 && row < seq_q {
            stats[2 * index] = row_max[i];
            stats[2 * index + 1] = sum[i];
        }
        // The maximum contributes 1 to the sum. For a fully masked row the context is zero
        // already, and any positive divisor keeps it.
        sum[i] = max(sum[i], 0.5f32);
        if unit_column == 0 && row < seq_q {
            log_sum_exp[index] = row_max[i] + sum[i].ln();
        }
        #[unroll]
        for vec4 in 0..row_vec4s {
            sums[i * row_vec4s + vec4] /= Vec4::new(sum[i]);
        }
    }
    store_sums::<E, N>(context, &contexts, query_tile.first, &sums, blocks, layout);
}
