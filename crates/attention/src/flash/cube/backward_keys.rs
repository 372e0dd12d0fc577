//! The gradients of a tile of keys and values.

use cubecl::prelude::*;

use super::additive::{add_additive, new_additive_sums, tile_products, vector_of};
use super::call::{Head, KernelArgs};
use super::device_plan::RowAxis;
use super::head_parts::head_part;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position, zero_sums};
use super::program::{
    KernelProgram, inverse_temperature, probability, score_gradient, stats_width,
};
use super::random::{Stream, dropout_factor, row_key};
use super::score::{
    Tile, finish_scores, inverse_sum, load_run, may_mask, write_softcap_grads, zero_if_masked,
};
use super::tile::{add_weighted, matmul_nt, store_sums, store_weights};

/// Each cube computes a key tile of a head, query tile by query tile, for [some](head_part) or all of the
/// query heads that share it. Rows of a tile are keys, columns are queries.
#[cube(launch_unchecked)]
pub(super) fn backward_keys<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    d_context: &[Vector<E, N>],
    stats: &[f32],
    deltas: &[f32],
    d_key: &mut [Vector<E, N>],
    d_value: &mut [Vector<E, N>],
    #[comptime] key_blocks: usize,
    #[comptime] value_blocks: usize,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let program = comptime!(args.program);
    // Hard attention computes the gradient of the values from the selected keys.
    let has_value_grad = comptime!(!program.is_hard());
    let is_additive = comptime!(program == KernelProgram::Additive);
    let stats_width = stats_width(&args.call, program);
    let call = &args.call;
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let key_vec4s = comptime!(layout.unit_rows * layout.unit_vec4s * key_blocks);
    let (unit_row, unit_column) = unit_position(layout);
    // In ascending order: with a causal mask the first keys have the most queries.
    let tile_row = CUBE_POS_X as usize;
    let example = CUBE_POS_Z as usize;
    let part = head_part(call);
    let kv_head = part.kv_head;
    let seq_q = call.seq_q as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let keys = call
        .key
        .matrix(args.key, example, kv_head, call.seq_k, call.d_head)
        .at(first);
    let values = call
        .value
        .matrix(args.value, example, kv_head, call.seq_k, call.d_value)
        .at(first);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut softcap_grads = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut factors = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut products = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(columns);
    let mut inverse = Array::<f32>::new(columns);
    let mut delta = Array::<f32>::new(columns);
    let inverse_temperature = inverse_temperature::<E, N, M>(args);
    let mut key_sums = new_additive_sums(layout, key_blocks, false);
    let mut value_sums = zero_sums(comptime!(
        layout.unit_rows * layout.unit_vec4s * value_blocks
    ));

    let index = example * call.plan_example as usize + tile_row;
    let first_run = args.plan[index];
    let end_run = args.plan[index + 1];
    for index_in_part in 0..part.heads {
        let head = Head {
            example,
            head: part.first_head + index_in_part,
        };
        let head_index = example * call.heads as usize + head.head;
        let head_queries =
            call.query
                .matrix(args.query, example, head.head, call.seq_q, call.d_head);
        let head_d_contexts =
            call.d_context
                .matrix(d_context, example, head.head, call.seq_q, call.d_value);
        for run_index in first_run..end_run {
            let run = load_run(run_index, args.plan, call);
            for tile_index in run.first..run.end {
                let tile = Tile {
                    row_axis: RowAxis::Keys,
                    head,
                    query: tile_index as usize * comptime!(layout.tile_n()),
                    key: first,
                    bitmap: run.bitmap,
                };
                let queries = head_queries.at(tile.query);
                let d_contexts = head_d_contexts.at(tile.query);
                #[unroll]
                for j in 0..columns {
                    let row = tile.query + unit_column * 4 + comptime!(layout.column_offset(j));
                    row_max[j] = 0.0f32;
                    inverse[j] = 0.0f32;
                    delta[j] = 0.0f32;
                    if row < seq_q {
                        let index = head_index * seq_q + row;
                        row_max[j] = stats[stats_width * index];
                        inverse[j] = inverse_sum(stats[stats_width * index + 1]);
                        delta[j] = deltas[index];
                    }
                }
                tile_products::<E, N, M>(
                    args,
                    head.head,
                    &keys,
                    &queries,
                    &mut memory,
                    &mut products,
                );
                write_softcap_grads(&mut products, &mut softcap_grads, call, is_plain, layout);
                finish_scores::<E, N, M>(args, &tile, &mut products, &mut memory);
                #[unroll]
                for j in 0..columns {
                    let query_in = unit_column * 4 + comptime!(layout.column_offset(j));
                    #[unroll]
                    for i in 0..rows {
                        weights[i * columns + j] = probability(
                            products[i * columns + j],
                            row_max[j],
                            inverse[j],
                            inverse_temperature,
                            program,
                        );
                        // The weights of `d_value`, to which dropout is applied.
                        products[i * columns + j] = weights[i * columns + j];
                    }
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let query = tile.query + query_in;
                            let query_key =
                                row_key(&head, query, args.table, call, program, Stream::Dropout);
                            #[unroll]
                            for i in 0..rows {
                                let key = tile.key + unit_row + i * cube_side;
                                let dropout =
                                    dropout_factor(query_key.low, query_key.high, key, call);
                                factors[i * columns + j] = dropout;
                                products[i * columns + j] *= dropout;
                            }
                        }
                    }
                }
                let is_masked = may_mask(&tile, call, is_plain);
                if has_value_grad {
                    store_weights::<E>(&mut products, &mut memory);
                    add_weighted::<E, N>(
                        &d_contexts,
                        &mut memory,
                        &mut value_sums,
                        is_masked,
                        value_blocks,
                    );
                }
                matmul_nt::<E, N>(&values, &d_contexts, &mut memory, &mut products);
                #[unroll]
                for i in 0..rows {
                    #[unroll]
                    for j in 0..columns {
                        let mut d_weight = products[i * columns + j];
                        if !is_plain {
                            if call.dropout_threshold > 0u32 {
                                d_weight *= factors[i * columns + j];
                            }
                        }
                        let weight = weights[i * columns + j];
                        let mut d_score = score_gradient(
                            weight,
                            d_weight,
                            delta[j],
                            inverse_temperature,
                            program,
                        );
                        if !is_plain {
                            if call.softcap > 0.0f32 {
                                d_score *= softcap_grads[i * columns + j];
                            }
                        }
                        products[i * columns + j] = zero_if_masked(d_score, weight);
                    }
                }
                store_weights::<E>(&mut products, &mut memory);
                if is_additive {
                    let vector = vector_of::<E, N, M>(args, head.head);
                    add_additive::<E, N>(
                        &keys,
                        &queries,
                        &vector,
                        &mut memory,
                        &mut key_sums,
                        key_blocks,
                        false,
                    );
                } else {
                    add_weighted::<E, N>(
                        &queries,
                        &mut memory,
                        &mut key_sums.rows,
                        is_masked,
                        key_blocks,
                    );
                }
            }
        }
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    #[unroll]
    for i in 0..key_vec4s {
        key_sums.rows[i] *= Vec4::new(call.scale);
    }
    let head_index = part.result_head(example);
    let d_keys = contiguous_rows(head_index, call.seq_k, call.d_head);
    let d_values = contiguous_rows(head_index, call.seq_k, call.d_value);
    store_sums::<E, N>(d_key, &d_keys, first, &key_sums.rows, key_blocks, layout);
    if has_value_grad {
        store_sums::<E, N>(d_value, &d_values, first, &value_sums, value_blocks, layout);
    }
}
