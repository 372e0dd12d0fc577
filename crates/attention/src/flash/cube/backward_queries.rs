//! The gradient by some queries.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::Rowwise;
use super::layout::Layout;
use super::memory::{Four, Rows, SharedMemory};
use super::score::{
    Drawn, Head, Tile, drawn_by, factor, finish_scores, inverse_of_sum, may_hide, slope, visible,
    weight,
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
    let unit = UNIT_POS as usize;
    let down = unit / side;
    let across = unit % side;
    let row_of_tiles = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let head = Head {
        example: CUBE_POS_Z as usize,
        head: CUBE_POS_Y as usize,
    };
    let kv_head = head.head / call.group as usize;
    let first = row_of_tiles * comptime!(layout.down());
    let queries = call
        .query
        .rows(head.example, head.head, call.seq_q, call.d_head);
    let keys = call
        .key
        .rows(head.example, kv_head, call.seq_k, call.d_head);
    let values = call
        .value
        .rows(head.example, kv_head, call.seq_k, call.d_value);
    let upstream = call
        .d_context
        .rows(head.example, head.head, call.seq_q, call.d_value);
    let seq_q = call.seq_q as usize;
    let of_head = head.example * call.heads as usize + head.head;

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
        let row = first + down + i * side;
        most[i] = 0.0f32;
        inverse[i] = 0.0f32;
        mean[i] = 0.0f32;
        if row < seq_q {
            let at = of_head * seq_q + row;
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
                let by = drawn_by(&head, row, table, call);
                low[i] = by.low;
                high[i] = by.high;
            }
        }
    }

    let at = head.example * call.plan_example as usize + row_of_tiles;
    let begin = plan[at];
    let end = plan[at + 1];
    for run in begin..end {
        let run_at = call.runs_at as usize + run as usize * 3;
        let bitmap = plan[run_at + 2] as usize;
        for number in plan[run_at]..plan[run_at + 1] {
            let tile = Tile {
                query: first,
                key: number as usize * comptime!(layout.across()),
                bitmap,
            };
            multiply::<E, N>(
                query,
                &queries,
                tile.query,
                key,
                &keys,
                tile.key,
                &mut memory,
                &mut products,
                layout,
            );
            if !is_plain {
                if call.softcap > 0.0f32 {
                    #[unroll]
                    for at in 0..comptime!(layout.own()) {
                        slopes[at] = slope(products[at], call);
                    }
                }
            }
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
                &values,
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
                &keys,
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
    let d_queries = Rows {
        start: of_head * seq_q * call.d_head as usize,
        stride: call.d_head as usize,
        count: seq_q,
        width: call.d_head as usize,
    };
    store_sums::<E, N>(d_query, &d_queries, first, &sums, &one, blocks, layout);
}
