//! The gradients of a tile of keys and values.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::RowAxis;
use super::layout::Layout;
use super::memory::{SharedMemory, Vec4, contiguous_rows, unit_position};
use super::score::{
    Head, Tile, dropout_factor, dropout_key, finish_scores, inverse_sum, load_run, may_mask,
    weight, write_softcap_grads, zero_if_masked,
};
use super::tile::{add_weighted, matmul_nt, store_sums, store_weights};

/// Each cube computes a key tile of a head, query tile by query tile, for all query heads that
/// share it. Rows of a tile are keys, columns are queries.
#[cube(launch_unchecked)]
pub(super) fn backward_keys<E: Float, N: Size, M: Numeric>(
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
    d_key: &mut [Vector<E, N>],
    d_value: &mut [Vector<E, N>],
    call: &Call,
    #[comptime] layout: Layout,
    #[comptime] key_blocks: usize,
    #[comptime] value_blocks: usize,
    #[comptime] is_plain: bool,
    #[define(E)] _dtype: ElemType,
    #[define(M)] _mask_dtype: ElemType,
) {
    let cube_side = comptime!(layout.cube_side);
    let rows = comptime!(layout.unit_rows);
    let columns = comptime!(layout.unit_columns());
    let key_vec4s = comptime!(layout.unit_rows * layout.unit_vec4s * key_blocks);
    let value_vec4s = comptime!(layout.unit_rows * layout.unit_vec4s * value_blocks);
    let (unit_row, unit_column) = unit_position(layout);
    // In ascending order: with a causal mask the first keys have the most queries.
    let tile_row = CUBE_POS_X as usize;
    let example = CUBE_POS_Z as usize;
    let kv_head = CUBE_POS_Y as usize;
    let group = call.group as usize;
    let kv_heads = call.heads as usize / group;
    let seq_q = call.seq_q as usize;
    let first = tile_row * comptime!(layout.tile_m());
    let keys = call.key.rows(example, kv_head, call.seq_k, call.d_head);
    let values = call.value.rows(example, kv_head, call.seq_k, call.d_value);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut softcap_grads = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut factors = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut products = Array::<f32>::new(comptime!(layout.unit_elements()));
    let mut row_max = Array::<f32>::new(columns);
    let mut inverse = Array::<f32>::new(columns);
    let mut delta = Array::<f32>::new(columns);
    let mut key_sums = Array::<Vec4>::new(key_vec4s);
    let mut value_sums = Array::<Vec4>::new(value_vec4s);
    #[unroll]
    for i in 0..key_vec4s {
        key_sums[i] = Vec4::new(0.0f32);
    }
    #[unroll]
    for i in 0..value_vec4s {
        value_sums[i] = Vec4::new(0.0f32);
    }

    let index = example * call.plan_example as usize + tile_row;
    let first_run = plan[index];
    let end_run = plan[index + 1];
    for group_index in 0..group {
        let head = Head {
            example,
            head: kv_head * group + group_index,
        };
        let head_index = example * call.heads as usize + head.head;
        let queries = call.query.rows(example, head.head, call.seq_q, call.d_head);
        let d_contexts = call
            .d_context
            .rows(example, head.head, call.seq_q, call.d_value);
        for run_index in first_run..end_run {
            let run = load_run(run_index, plan, call);
            for tile_index in run.first..run.end {
                let tile = Tile {
                    query: tile_index as usize * comptime!(layout.tile_n()),
                    key: first,
                    bitmap: run.bitmap,
                };
                #[unroll]
                for j in 0..columns {
                    let row = tile.query + unit_column * 4 + comptime!(layout.column_offset(j));
                    row_max[j] = 0.0f32;
                    inverse[j] = 0.0f32;
                    delta[j] = 0.0f32;
                    if row < seq_q {
                        let index = head_index * seq_q + row;
                        row_max[j] = stats[2 * index];
                        inverse[j] = inverse_sum(stats[2 * index + 1]);
                        delta[j] = deltas[index];
                    }
                }
                matmul_nt::<E, N>(
                    key,
                    &keys,
                    tile.key,
                    query,
                    &queries,
                    tile.query,
                    &mut memory,
                    &mut products,
                    layout,
                );
                write_softcap_grads(&products, &mut softcap_grads, call, is_plain, layout);
                finish_scores::<E, M>(
                    &mut products,
                    &head,
                    &tile,
                    &mut memory.full,
                    plan,
                    table,
                    mask,
                    bias,
                    call,
                    RowAxis::Keys,
                    is_plain,
                    layout,
                );
                #[unroll]
                for j in 0..columns {
                    let query_in = unit_column * 4 + comptime!(layout.column_offset(j));
                    #[unroll]
                    for i in 0..rows {
                        let prob = weight(products[i * columns + j], row_max[j]) * inverse[j];
                        weights[i * columns + j] = prob;
                        // The weights of `d_value`, to which dropout is applied.
                        products[i * columns + j] = weights[i * columns + j];
                    }
                    if !is_plain {
                        if call.dropout_threshold > 0u32 {
                            let row_key = dropout_key(&head, tile.query + query_in, table, call);
                            #[unroll]
                            for i in 0..rows {
                                let dropout = dropout_factor(
                                    &row_key,
                                    tile.key + unit_row + i * cube_side,
                                    call,
                                );
                                factors[i * columns + j] = dropout;
                                products[i * columns + j] *= dropout;
                            }
                        }
                    }
                }
                let is_masked = may_mask(&tile, call, is_plain);
                store_weights::<E>(&mut products, &mut memory, layout);
                add_weighted::<E, N>(
                    d_context,
                    &d_contexts,
                    tile.query,
                    &mut memory,
                    &mut value_sums,
                    is_masked,
                    value_blocks,
                    layout,
                );
                matmul_nt::<E, N>(
                    value,
                    &values,
                    tile.key,
                    d_context,
                    &d_contexts,
                    tile.query,
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
                                d_weight *= factors[i * columns + j];
                            }
                        }
                        let mut d_score = weights[i * columns + j] * (d_weight - delta[j]);
                        if !is_plain {
                            if call.softcap > 0.0f32 {
                                d_score *= softcap_grads[i * columns + j];
                            }
                        }
                        products[i * columns + j] =
                            zero_if_masked(d_score, weights[i * columns + j]);
                    }
                }
                store_weights::<E>(&mut products, &mut memory, layout);
                add_weighted::<E, N>(
                    query,
                    &queries,
                    tile.query,
                    &mut memory,
                    &mut key_sums,
                    is_masked,
                    key_blocks,
                    layout,
                );
            }
        }
    }

    // Scaled once, after the accumulation, and not before rounding to half precision.
    #[unroll]
    for i in 0..key_vec4s {
        key_sums[i] *= Vec4::new(call.scale);
    }
    let head_index = example * kv_heads + kv_head;
    let d_keys = contiguous_rows(head_index, call.seq_k, call.d_head);
    let d_values = contiguous_rows(head_index, call.seq_k, call.d_value);
    store_sums::<E, N>(d_key, &d_keys, first, &key_sums, key_blocks, layout);
    store_sums::<E, N>(d_value, &d_values, first, &value_sums, value_blocks, layout);
}
