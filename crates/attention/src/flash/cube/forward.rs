//! The forward pass: context, log-sum-exp and softmax statistics of a query tile.

use cubecl::prelude::*;

use super::additive::tile_products;
use super::call::KernelArgs;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position, zero_sums};
use super::program::{KernelProgram, sigmoid_weight};
use super::random::{dropout_factor, load_dropout_keys};
use super::score::{finish_scores, key_tile, load_query_tile, load_run, may_mask, weight};
use super::tile::{add_weighted, reduce_rows, store_sums, store_weights};
use crate::flash::call::MASKED_SCORE;

/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn forward<E: Float, N: Size, M: Numeric, C: Float>(
    args: &KernelArgs<E, N, M>,
    context: &mut [Vector<C, N>],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[comptime] blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
    #[define(C)] _context_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let program = comptime!(args.program);
    let is_normalized = comptime!(program != KernelProgram::Sigmoid);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let row_vec4s = comptime!(blocks * layout.unit_vec4s);
    let (unit_row, unit_column) = unit_position(layout);
    let query_tile = load_query_tile::<E, N, M>(args);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut scores = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(rows);
    let mut new_max = Array::<f32>::new(rows);
    let mut sum = Array::<f32>::new(rows);
    let mut sums = zero_sums(comptime!(layout.unit_rows * blocks * layout.unit_vec4s));
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        row_max[i] = MASKED_SCORE;
        sum[i] = 0.0f32;
    }
    load_dropout_keys::<E, N, M>(args, &query_tile, &mut low, &mut high);

    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, args.plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
            let keys = query_tile.keys.at(tile.key);
            let values = query_tile.values.at(tile.key);
            let head = query_tile.head.head;
            let queries = &query_tile.queries;
            tile_products::<E, N, M>(args, head, queries, &keys, &mut memory, &mut scores);
            finish_scores::<E, N, M>(args, &tile, &mut scores, &mut memory);
            if is_normalized {
                #[unroll]
                for i in 0..rows {
                    let mut tile_max = row_max[i];
                    #[unroll]
                    for j in 0..columns {
                        tile_max = max(tile_max, scores[i * columns + j]);
                    }
                    new_max[i] = tile_max;
                }
                reduce_rows::<E>(&mut new_max, &mut memory, false);
            }
            #[unroll]
            for i in 0..rows {
                if is_normalized {
                    let rescale = (row_max[i] - new_max[i]).exp();
                    row_max[i] = new_max[i];
                    sum[i] *= rescale;
                    #[unroll]
                    for vec4 in 0..row_vec4s {
                        sums[i * row_vec4s + vec4] *= Vec4::new(rescale);
                    }
                }
                let mut total = sum[i];
                #[unroll]
                for j in 0..columns {
                    let score = scores[i * columns + j];
                    let mut weight = unnormalized_weight(score, row_max[i], program);
                    total += weight;
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let key_in = unit_column * 4 + comptime!(layout.column_offset(j));
                            weight *= dropout_factor(low[i], high[i], tile.key + key_in, call);
                        }
                    }
                    scores[i * columns + j] = weight;
                }
                sum[i] = total;
            }
            store_weights::<E>(&mut scores, &mut memory);
            let is_masked = may_mask(&tile, call, is_plain);
            add_weighted::<E, N>(&values, &mut memory, &mut sums, is_masked, blocks);
        }
    }

    if is_normalized {
        reduce_rows::<E>(&mut sum, &mut memory, true);
    } else {
        #[unroll]
        for i in 0..rows {
            row_max[i] = 0.0f32;
            sum[i] = 1.0f32;
        }
    }
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
    store_sums::<C, N>(context, &contexts, query_tile.first, &sums, blocks, layout);
}

/// The weight of a score before the division by the sum of its row.
#[cube]
fn unnormalized_weight(score: f32, row_max: f32, #[comptime] program: KernelProgram) -> f32 {
    if comptime!(program == KernelProgram::Sigmoid) {
        sigmoid_weight(score)
    } else {
        weight(score, row_max)
    }
}
