//! The gradient by some queries.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::Rowwise;
use super::layout::Layout;
use super::memory::{Four, SharedMemory, contiguous_rows, unit_position};
use super::score::{
    Drawn, drawn_by, factor, finish_scores, inverse_of_sum, may_hide, query_tile, run_of_plan,
    tile_of_keys, visible, weight, write_slopes,
};
use super::tile::{add_weighted, multiply, put_weights, store_sums};

/// A cube computes a tile of queries of a head, key tile by key tile.
#[cube(launch_unchecked)]
pub(super) fn backward_queries<E: Float, N: Size, M: Numeric>(
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
    d_query: &mut [Vector<E, N>],
    call: &Call,
    #[comptime] layout: Layout,
    #[comptime] blocks: usize,
    #[comptime] is_plain: bool,
    #[define(E)] _type_of_numbers: ElemType,
    #[define(M)] _type_of_mask: ElemType,
) {
    let side = comptime!(layout.side);
    let rows = comptime!(layout.rows);
    let columns = comptime!(layout.columns());
    let parts = comptime!(blocks * layout.fours);
    let (down, across) = unit_position(layout);
    let own = query_tile(plan, call, layout);
    let upstream = call
        .d_context
        .rows(own.head.example, own.head.head, call.seq_q, call.d_value);
    let seq_q = call.seq_q as usize;

    let mut memory = SharedMemory::<E>::new(layout);
    let mut weights = Array::<f32>::new(comptime!(layout.own()));
    let mut slopes = Array::<f32>::new(comptime!(layout.own()));
    let mut products = Array::<f32>::new(comptime!(layout.own()));
    let mut most = Array::<f32>::new(rows);
    let mut inverse = Array::<f32>::new(rows);
    let mut mean = Array::<f32>::new(rows);
    let mut one = Array::<f32>::new(rows);
    let mut sums = Array::<Four>::new(comptime!(layout.rows * blocks * layout.fours));
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        let row = own.first + down + i * side;
        most[i] = 0.0f32;
        inverse[i] = 0.0f32;
        mean[i] = 0.0f32;
        if row < seq_q {
            let at = own.number * seq_q + row;
            most[i] = stats[2 * at];
            inverse[i] = inverse_of_sum(stats[2 * at + 1]);
            mean[i] = means[at];
        }
        one[i] = 1.0f32;
        #[unroll]
        for part in 0..parts {
            sums[i * parts + part] = Four::new(0.0f32);
        }
        if !is_plain {
            if call.threshold > 0u32 {
                let by = drawn_by(&own.head, row, table, call);
                low[i] = by.low;
                high[i] = by.high;
            }
        }
    }

    for number in own.begin..own.end {
        let run = run_of_plan(number, plan, call);
        for at in run.first..run.end {
            let tile = tile_of_keys(&own, at, &run, layout);
            multiply::<E, N>(
                query,
                &own.queries,
                tile.query,
                key,
                &own.keys,
                tile.key,
                &mut memory,
                &mut products,
                layout,
            );
            write_slopes(&products, &mut slopes, call, is_plain, layout);
            finish_scores::<E, M>(
                &mut products,
                &own.head,
                &tile,
                &mut memory.wide,
                plan,
                table,
                mask,
                bias,
                call,
                Rowwise::Queries,
                is_plain,
                layout,
            );
            #[unroll]
            for i in 0..rows {
                #[unroll]
                for j in 0..columns {
                    let share = weight(products[i * columns + j], most[i]) * inverse[i];
                    weights[i * columns + j] = share;
                }
            }
            multiply::<E, N>(
                d_context,
                &upstream,
                tile.query,
                value,
                &own.values,
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
                        if call.threshold > 0u32 {
                            let by = Drawn {
                                low: low[i],
                                high: high[i],
                            };
                            d_weight *= factor(
                                &by,
                                tile.key + across * 4 + comptime!(layout.column(j)),
                                call,
                            );
                        }
                    }
                    let mut d_score = weights[i * columns + j] * (d_weight - mean[i]);
                    if !is_plain {
                        if call.softcap > 0.0f32 {
                            d_score *= slopes[i * columns + j];
                        }
                    }
                    products[i * columns + j] = visible(d_score, weights[i * columns + j]);
                }
            }
            put_weights::<E>(&mut products, &mut memory, layout);
            let hides = may_hide(&tile, call, is_plain);
            add_weighted::<E, N>(
                key,
                &own.keys,
                tile.key,
                &mut memory,
                &mut sums,
                hides,
                blocks,
                layout,
            );
        }
    }

    // Once, and not on the way through half precision.
    #[unroll]
    for at in 0..comptime!(layout.rows * blocks * layout.fours) {
        sums[at] *= Four::new(call.scale);
    }
    let d_queries = contiguous_rows(own.number, call.seq_q, call.d_head);
    store_sums::<E, N>(d_query, &d_queries, own.first, &sums, &one, blocks, layout);
}
