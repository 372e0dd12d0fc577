//! Hard attention: the selected key of each query, and the deltas of its soft weights.

use cubecl::prelude::*;

use super::call::KernelArgs;
use super::gradient::{GradTarget, load_rows, new_row_state, new_tile_registers, tile_gradients};
use super::memory::{SharedMemory, Vec4, contiguous_rows, load_vec4, store_vec4, unit_position};
use super::program::{KernelProgram, inverse_temperature, soft_score};
use super::random::{Stream, dropout_factor, row_key};
use super::score::{finish_scores, key_tile, load_query_tile, load_run, weight};
use super::tile::{matmul_nt, reduce_rows};
use crate::flash::call::MASKED_SCORE;

/// The index of a query without a visible key.
pub(super) const NO_KEY: f32 = -1.0;

/// Below the negative of every index.
const NOT_BEST: f32 = -1e30;

/// Each cube computes a query tile of a head, key tile by key tile: the largest score of each query,
/// and the softmax statistics of sampled ones. The values are read once, at the end.
#[cube(launch_unchecked)]
pub(super) fn forward_hard<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    context: &mut [Vector<E, N>],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[comptime] blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let program = comptime!(args.program);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let is_sampled = comptime!(program == KernelProgram::Sampled);
    let (unit_row, unit_column) = unit_position(layout);
    let query_tile = load_query_tile::<E, N, M>(args);
    let inverse_temperature = inverse_temperature::<E, N, M>(args);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut scores = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut best = Array::<f32>::new(rows);
    let mut best_key = Array::<f32>::new(rows);
    // Zero, or NaN if a visible score is.
    let mut nan = Array::<f32>::new(rows);
    let mut row_max = Array::<f32>::new(rows);
    let mut new_max = Array::<f32>::new(rows);
    let mut sum = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        best[i] = MASKED_SCORE;
        best_key[i] = NO_KEY;
        nan[i] = 0.0f32;
        row_max[i] = MASKED_SCORE;
        sum[i] = 0.0f32;
    }

    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, args.plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
            let keys = query_tile.keys.at(tile.key);
            matmul_nt::<E, N>(&query_tile.queries, &keys, &mut memory, &mut scores);
            finish_scores::<E, N, M>(args, &tile, &mut scores, &mut memory);
            #[unroll]
            for i in 0..rows {
                new_max[i] = row_max[i];
                #[unroll]
                for j in 0..columns {
                    let score = scores[i * columns + j];
                    let key = tile.key + unit_column * 4 + comptime!(layout.column_offset(j));
                    // Keys are in ascending order: the first of equal scores is the best.
                    let is_better = score > best[i];
                    best[i] = select(is_better, score, best[i]);
                    best_key[i] = select(is_better, f32::cast_from(key), best_key[i]);
                    nan[i] = select(is_nan(score), score, nan[i]);
                    if is_sampled {
                        let soft = soft_score(score, inverse_temperature, program);
                        scores[i * columns + j] = soft;
                        new_max[i] = max(new_max[i], soft);
                    }
                }
            }
            if is_sampled {
                reduce_rows::<E>(&mut new_max, &mut memory, false);
                #[unroll]
                for i in 0..rows {
                    let mut total = sum[i] * (row_max[i] - new_max[i]).exp();
                    row_max[i] = new_max[i];
                    #[unroll]
                    for j in 0..columns {
                        total += weight(scores[i * columns + j], row_max[i]);
                    }
                    sum[i] = total;
                }
            }
        }
    }

    #[unroll]
    for i in 0..rows {
        new_max[i] = best[i];
    }
    sync_cube();
    reduce_rows::<E>(&mut new_max, &mut memory, false);
    #[unroll]
    for i in 0..rows {
        best_key[i] = select(best[i] == new_max[i], -best_key[i], NOT_BEST);
    }
    sync_cube();
    reduce_rows::<E>(&mut best_key, &mut memory, false);
    sync_cube();
    reduce_rows::<E>(&mut nan, &mut memory, true);
    sync_cube();
    reduce_rows::<E>(&mut sum, &mut memory, true);

    let width = comptime!(program.stats_width());
    let contexts = contiguous_rows(query_tile.head_index, call.seq_q, call.d_value);
    #[unroll]
    for i in 0..rows {
        let row = query_tile.first + unit_row + i * cube_side;
        let index = query_tile.head_index * call.seq_q as usize + row;
        let has_key = new_max[i] > MASKED_SCORE;
        let selected = select(has_key, -best_key[i], NO_KEY);
        if unit_column == 0 && row < call.seq_q as usize {
            stats[width * index] = row_max[i];
            stats[width * index + 1] = sum[i];
            stats[width * index + 2] = selected + nan[i];
            log_sum_exp[index] = row_max[i] + max(sum[i], 0.5f32).ln();
        }
        // Rows out of range are zeros.
        let key = select(has_key, u32::cast_from(max(selected, 0.0f32)), call.seq_k) as usize;
        let mut factor = 1.0f32.runtime();
        if comptime!(!args.is_plain) {
            if call.dropout_threshold > 0u32 {
                let head = &query_tile.head;
                let of_row = row_key(head, row, args.table, call, program, Stream::Dropout);
                factor = dropout_factor(of_row.low, of_row.high, key, call);
            }
        }
        for block in 0..comptime!(blocks * layout.unit_vec4s) {
            let vec4 = block * cube_side + unit_column;
            let value = Vec4::cast_from(load_vec4::<E, N>(&query_tile.values, key, vec4));
            let value = value * Vec4::new(factor) + Vec4::new(nan[i]);
            store_vec4::<E, N>(context, &contexts, row, vec4, value);
        }
    }
}

/// Checks the bits: shader compilers may assume that no float is NaN.
#[cube]
pub(super) fn is_nan(x: f32) -> bool {
    u32::reinterpret(x) & 0x7fff_ffffu32 > 0x7f80_0000u32
}

/// `rowsum(weights · d_weights)` of the soft weights of sampled keys, whose context is not computed.
/// Each cube computes a query tile of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn soft_deltas<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &mut [f32],
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let (unit_row, unit_column) = unit_position(layout);
    let query_tile = load_query_tile::<E, N, M>(args);
    let d_contexts = query_tile.d_contexts(d_context, call);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut registers = new_tile_registers::<E, N, M>(args);
    let mut products = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut sum = Array::<f32>::new(rows);
    let mut state = new_row_state::<E, N, M>(args);
    let target = comptime!(GradTarget::Products);
    load_rows::<E, N, M>(args, &query_tile, stats, stats, &mut state, target);
    #[unroll]
    for i in 0..rows {
        sum[i] = 0.0f32;
    }
    for run_index in query_tile.first_run..query_tile.end_run {
        let run = load_run(run_index, args.plan, call);
        for tile_index in run.first..run.end {
            let tile = key_tile::<E, N>(&query_tile, tile_index, &run, layout);
            tile_gradients::<E, N, M>(
                args,
                &query_tile,
                &d_contexts,
                &tile,
                &state,
                &mut memory,
                &mut registers,
                &mut products,
                target,
            );
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    sum[i] += products[i * columns + j];
                }
            }
        }
    }
    sync_cube();
    reduce_rows::<E>(&mut sum, &mut memory, true);
    #[unroll]
    for i in 0..rows {
        let row = query_tile.first + unit_row + i * cube_side;
        if unit_column == 0 && row < call.seq_q as usize {
            deltas[query_tile.head_index * call.seq_q as usize + row] = sum[i];
        }
    }
}
