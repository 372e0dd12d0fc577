//! Hard attention: the selected key of each query, and the gradient of the values.

use cubecl::prelude::*;

use super::call::{Head, KernelArgs};
use super::memory::{
    SharedMemory, Vec4, contiguous_rows, load_vec4, store_vec4, unit_position, zero_sums,
};
use super::program::{HARD_STATS, inverse_temperature, soft_score, stats_width};
use super::random::{Stream, dropout_factor, load_dropout_keys, row_key};
use super::score::{finish_scores, key_tile, load_query_tile, load_run, may_mask, weight};
use super::tile::{add_weighted, matmul_nt, reduce_rows, store_weights};
use crate::flash::call::MASKED_SCORE;

/// The index of a query without a visible key.
const NO_KEY: f32 = -1.0;

/// Below the negative of every index.
const NOT_BEST: f32 = -1e30;

/// Each cube computes a query tile of a head, key tile by key tile: the largest score of each query,
/// whose value is read at the end; and if `soft_blocks` is not zero, the softmax statistics and the
/// context of the soft weights for the backward pass.
#[cube(launch_unchecked)]
pub(super) fn forward_hard<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    context: &mut [Vector<E, N>],
    log_sum_exp: &mut [f32],
    stats: &mut [f32],
    #[comptime] blocks: usize,
    #[comptime] soft_blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let program = comptime!(args.program);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let is_plain = comptime!(args.is_plain);
    let is_soft = comptime!(soft_blocks > 0);
    let row_vec4s = comptime!(soft_blocks * layout.unit_vec4s);
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
    let mut sums = zero_sums(comptime!((rows * row_vec4s).max(1)));
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        best[i] = MASKED_SCORE;
        best_key[i] = NO_KEY;
        nan[i] = 0.0f32;
        row_max[i] = MASKED_SCORE;
        sum[i] = 0.0f32;
    }
    load_dropout_keys::<E, N, M>(args, &query_tile, &mut low, &mut high);

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
                    if is_soft {
                        let soft = soft_score(score, inverse_temperature, program);
                        scores[i * columns + j] = soft;
                        new_max[i] = max(new_max[i], soft);
                    }
                }
            }
            if is_soft {
                reduce_rows::<E>(&mut new_max, &mut memory, false);
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
                                let key_in = unit_column * 4 + comptime!(layout.column_offset(j));
                                weight *= dropout_factor(low[i], high[i], tile.key + key_in, call);
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
                store_weights::<E>(&mut scores, &mut memory);
                let values = query_tile.values.at(tile.key);
                let is_masked = may_mask(&tile, call, is_plain);
                add_weighted::<E, N>(&values, &mut memory, &mut sums, is_masked, soft_blocks);
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

    let mut width = HARD_STATS.runtime();
    if is_soft {
        width = HARD_STATS + call.d_value as usize;
    }
    let contexts = contiguous_rows(query_tile.head_index, call.seq_q, call.d_value);
    #[unroll]
    for i in 0..rows {
        let row = query_tile.first + unit_row + i * cube_side;
        let index = query_tile.head_index * call.seq_q as usize + row;
        let is_row = row < call.seq_q as usize;
        let has_key = new_max[i] > MASKED_SCORE;
        let selected = select(has_key, -best_key[i], NO_KEY);
        let divisor = max(sum[i], 0.5f32);
        if unit_column == 0 && is_row {
            stats[width * index] = row_max[i];
            stats[width * index + 1] = sum[i];
            stats[width * index + 2] = selected + nan[i];
            stats[width * index + 3] = 0.0f32;
            log_sum_exp[index] = row_max[i] + divisor.ln();
        }
        // Rows out of range are zeros.
        let key = select(has_key, u32::cast_from(max(selected, 0.0f32)), call.seq_k) as usize;
        let mut factor = 1.0f32.runtime();
        if !is_plain {
            if call.dropout_threshold > 0u32 {
                factor = dropout_factor(low[i], high[i], key, call);
            }
        }
        for block in 0..comptime!(blocks * layout.unit_vec4s) {
            let vec4 = block * cube_side + unit_column;
            let value = Vec4::cast_from(load_vec4::<E, N>(&query_tile.values, key, vec4));
            let value = value * Vec4::new(factor) + Vec4::new(nan[i]);
            store_vec4::<E, N>(context, &contexts, row, vec4, value);
        }
        #[unroll]
        for block in 0..row_vec4s {
            #[unroll]
            for k in 0..4usize {
                let column = (block * cube_side + unit_column) * 4 + k;
                if is_row && column < call.d_value as usize {
                    stats[width * index + HARD_STATS + column] =
                        sums[i * row_vec4s + block].extract(k) / divisor;
                }
            }
        }
    }
}

/// Checks the bits: shader compilers may assume that no float is NaN.
#[cube]
fn is_nan(x: f32) -> bool {
    u32::reinterpret(x) & 0x7fff_ffffu32 > 0x7f80_0000u32
}

/// Units of a cube of [`backward_values_hard`]: at least the vec4s of a row.
pub(super) const VALUE_UNITS: usize = 64;

/// Keys of a cube of [`backward_values_hard`], so that their gradients are 8 KiB at most.
pub(super) fn keys_per_cube(d_value: usize) -> usize {
    512 / d_value
        .div_ceil(4)
        .next_power_of_two()
        .clamp(16, VALUE_UNITS)
}

/// The gradient of the values: the output gradients of the queries that selected them. Each cube
/// computes some keys of a head, for all query heads that share it.
#[cube(launch_unchecked)]
pub(super) fn backward_values_hard<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    d_value: &mut [Vector<E, N>],
    #[comptime] keys: usize,
    #[comptime] vec4s: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let program = comptime!(args.program);
    let call = &args.call;
    let unit = UNIT_POS as usize;
    let example = CUBE_POS_Z as usize;
    let kv_head = CUBE_POS_Y as usize;
    let group = call.group as usize;
    let heads = call.heads as usize;
    let seq_q = call.seq_q as usize;
    let first = CUBE_POS_X as usize * keys;
    let width = stats_width(call, program);
    let mut sums = Shared::<[Vec4]>::new_slice(comptime!(keys * vec4s));
    let mut selected = Shared::<[f32]>::new_slice(VALUE_UNITS);
    // Each unit has one vec4 of all rows.
    if unit < vec4s {
        for key in 0..keys {
            sums[key * vec4s + unit] = Vec4::new(0.0f32);
        }
    }
    for group_index in 0..group {
        let head = Head {
            example,
            head: kv_head * group + group_index,
        };
        let first_row = (example * heads + head.head) * seq_q;
        let d_contexts =
            call.d_context
                .matrix(d_context, example, head.head, call.seq_q, call.d_value);
        for block in 0..seq_q.div_ceil(VALUE_UNITS) {
            let query = block * VALUE_UNITS + unit;
            // The previous block has been read.
            sync_cube();
            selected[unit] = NO_KEY;
            if query < seq_q {
                selected[unit] = stats[width * (first_row + query) + 2];
            }
            sync_cube();
            for i in 0..VALUE_UNITS {
                let query = block * VALUE_UNITS + i;
                let index = selected[i];
                let key = u32::cast_from(max(index, 0.0f32)) as usize;
                let is_here = index >= 0.0f32 && key >= first && key < first + keys;
                if is_here && unit < vec4s {
                    let mut factor = 1.0f32.runtime();
                    if comptime!(!args.is_plain) {
                        if call.dropout_threshold > 0u32 {
                            let stream = comptime!(Stream::Dropout);
                            let of_query = row_key(&head, query, args.table, call, program, stream);
                            factor = dropout_factor(of_query.low, of_query.high, key, call);
                        }
                    }
                    let added = Vec4::cast_from(load_vec4::<E, N>(&d_contexts, query, unit));
                    sums[(key - first) * vec4s + unit] += added * Vec4::new(factor);
                }
                if is_nan(index) && unit < vec4s {
                    // The weights of all keys are NaN.
                    for key in 0..keys {
                        sums[key * vec4s + unit] += Vec4::new(index);
                    }
                }
            }
        }
    }
    if unit < vec4s {
        let rows = contiguous_rows(
            example * (heads / group) + kv_head,
            call.seq_k,
            call.d_value,
        );
        for key in 0..keys {
            store_vec4::<E, N>(d_value, &rows, first + key, unit, sums[key * vec4s + unit]);
        }
    }
}
