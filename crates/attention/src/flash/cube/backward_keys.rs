//! The gradients by some keys and their values.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::Rowwise;
use super::layout::Layout;
use super::memory::{Four, SharedMemory, contiguous_rows, unit_position};
use super::score::{
    Head, Tile, drawn_by, factor, finish_scores, inverse_of_sum, may_hide, run_of_plan, visible,
    weight, write_slopes,
};
use super::tile::{add_weighted, multiply, put_weights, store_sums};

/// A cube computes a tile of keys of a head, query tile by query tile, for all the heads of
/// queries that share it. Keys go down and queries across.
#[cube(launch_unchecked)]
pub(super) fn backward_keys<E: Float, N: Size, M: Numeric>(
    query: &[Vector<E, N>],
    key: &[Vector<E, N>],
    value: &[Vector<E, N>],
    d_context: &[Vector<E, N>],
    stats: &[f32],
    means: &[f32],
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
    #[define(E)] _type_of_numbers: ElemType,
    #[define(M)] _type_of_mask: ElemType,
) {
    let side = comptime!(layout.side);
    let rows = comptime!(layout.rows);
    let columns = comptime!(layout.columns());
    let key_parts = comptime!(layout.rows * layout.fours * key_blocks);
    let value_parts = comptime!(layout.rows * layout.fours * value_blocks);
    let (down, across) = unit_position(layout);
    // The first keys first: where the pattern is causal they have the most to do.
    let column_of_tiles = CUBE_POS_X as usize;
    let example = CUBE_POS_Z as usize;
    let kv_head = CUBE_POS_Y as usize;
    let group = call.group as usize;
    let kv_heads = call.heads as usize / group;
    let seq_q = call.seq_q as usize;
    let first = column_of_tiles * comptime!(layout.down());
    let keys = call.key.rows(example, kv_head, call.seq_k, call.d_head);
    let values = call.value.rows(example, kv_head, call.seq_k, call.d_value);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.own()));
    let mut slopes = Array::<f32>::new(comptime!(layout.own()));
    let mut factors = Array::<f32>::new(comptime!(layout.own()));
    let mut products = Array::<f32>::new(comptime!(layout.own()));
    let mut most = Array::<f32>::new(columns);
    let mut inverse = Array::<f32>::new(columns);
    let mut mean = Array::<f32>::new(columns);
    let mut one = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        one[i] = 1.0f32;
    }
    let mut key_sums = Array::<Four>::new(key_parts);
    let mut value_sums = Array::<Four>::new(value_parts);
    #[unroll]
    for i in 0..key_parts {
        key_sums[i] = Four::new(0.0f32);
    }
    #[unroll]
    for i in 0..value_parts {
        value_sums[i] = Four::new(0.0f32);
    }

    let at = example * call.plan_example as usize + column_of_tiles;
    let begin = plan[at];
    let end = plan[at + 1];
    for of_group in 0..group {
        let head = Head {
            example,
            head: kv_head * group + of_group,
        };
        let of_head = example * call.heads as usize + head.head;
        let queries = call.query.rows(example, head.head, call.seq_q, call.d_head);
        let upstream = call
            .d_context
            .rows(example, head.head, call.seq_q, call.d_value);
        for number in begin..end {
            let run = run_of_plan(number, plan, call);
            for at in run.first..run.end {
                let tile = Tile {
                    query: at as usize * comptime!(layout.across()),
                    key: first,
                    bitmap: run.bitmap,
                };
                #[unroll]
                for j in 0..columns {
                    let row = tile.query + across * 4 + comptime!(layout.column(j));
                    most[j] = 0.0f32;
                    inverse[j] = 0.0f32;
                    mean[j] = 0.0f32;
                    if row < seq_q {
                        let at = of_head * seq_q + row;
                        most[j] = stats[2 * at];
                        inverse[j] = inverse_of_sum(stats[2 * at + 1]);
                        mean[j] = means[at];
                    }
                }
                multiply::<E, N>(
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
                write_slopes(&products, &mut slopes, call, is_plain, layout);
                finish_scores::<E, M>(
                    &mut products,
                    &head,
                    &tile,
                    &mut memory.wide,
                    plan,
                    table,
                    mask,
                    bias,
                    call,
                    Rowwise::Keys,
                    is_plain,
                    layout,
                );
                #[unroll]
                for j in 0..columns {
                    let query_in = across * 4 + comptime!(layout.column(j));
                    #[unroll]
                    for i in 0..rows {
                        let share = weight(products[i * columns + j], most[j]) * inverse[j];
                        weights[i * columns + j] = share;
                        // What the values are weighted by.
                        products[i * columns + j] = weights[i * columns + j];
                    }
                    if !is_plain {
                        if call.threshold > 0u32 {
                            let by = drawn_by(&head, tile.query + query_in, table, call);
                            #[unroll]
                            for i in 0..rows {
                                let stays = factor(&by, tile.key + down + i * side, call);
                                factors[i * columns + j] = stays;
                                products[i * columns + j] *= stays;
                            }
                        }
                    }
                }
                let hides = may_hide(&tile, call, is_plain);
                put_weights::<E>(&mut products, &mut memory, layout);
                add_weighted::<E, N>(
                    d_context,
                    &upstream,
                    tile.query,
                    &mut memory,
                    &mut value_sums,
                    hides,
                    value_blocks,
                    layout,
                );
                multiply::<E, N>(
                    value,
                    &values,
                    tile.key,
                    d_context,
                    &upstream,
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
                            if call.threshold > 0u32 {
                                d_weight *= factors[i * columns + j];
                            }
                        }
                        let mut d_score = weights[i * columns + j] * (d_weight - mean[j]);
                        if !is_plain {
                            if call.softcap > 0.0f32 {
                                d_score *= slopes[i * columns + j];
                            }
                        }
                        products[i * columns + j] = visible(d_score, weights[i * columns + j]);
                    }
                }
                put_weights::<E>(&mut products, &mut memory, layout);
                add_weighted::<E, N>(
                    query,
                    &queries,
                    tile.query,
                    &mut memory,
                    &mut key_sums,
                    hides,
                    key_blocks,
                    layout,
                );
            }
        }
    }

    // Once, and not on the way through half precision.
    #[unroll]
    for i in 0..key_parts {
        key_sums[i] *= Four::new(call.scale);
    }
    let of_head = example * kv_heads + kv_head;
    let d_keys = contiguous_rows(of_head, call.seq_k, call.d_head);
    let d_values = contiguous_rows(of_head, call.seq_k, call.d_value);
    store_sums::<E, N>(d_key, &d_keys, first, &key_sums, &one, key_blocks, layout);
    store_sums::<E, N>(
        d_value,
        &d_values,
        first,
        &value_sums,
        &one,
        value_blocks,
        layout,
    );
}
