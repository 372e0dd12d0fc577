//! The context, the log-sum-exp and the softmax statistics of some queries.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::Rowwise;
use super::layout::Layout;
use super::memory::{Four, SharedMemory, contiguous_rows, unit_position};
use super::score::{
    Drawn, LOWEST, drawn_by, factor, finish_scores, may_hide, query_tile, run_of_plan,
    tile_of_keys, weight,
};
use super::tile::{across_units, add_weighted, multiply, put_weights, store_sums};

/// A cube computes a tile of queries of a head, key tile by key tile.
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
    #[define(E)] _type_of_numbers: ElemType,
    #[define(M)] _type_of_mask: ElemType,
) {
    let side = comptime!(layout.side);
    let rows = comptime!(layout.rows);
    let columns = comptime!(layout.columns());
    let parts = comptime!(blocks * layout.fours);
    let (down, across) = unit_position(layout);
    let own = query_tile(plan, call, layout);

    let mut memory = SharedMemory::<E>::new(layout);
    let mut scores = Array::<f32>::new(comptime!(layout.own()));
    let mut most = Array::<f32>::new(rows);
    let mut most_now = Array::<f32>::new(rows);
    let mut sum = Array::<f32>::new(rows);
    let mut sums = Array::<Four>::new(comptime!(layout.rows * blocks * layout.fours));
    let mut low = Array::<u32>::new(rows);
    let mut high = Array::<u32>::new(rows);
    #[unroll]
    for i in 0..rows {
        most[i] = LOWEST;
        sum[i] = 0.0f32;
        if !is_plain {
            if call.threshold > 0u32 {
                let by = drawn_by(&own.head, own.first + down + i * side, table, call);
                low[i] = by.low;
                high[i] = by.high;
            }
        }
        #[unroll]
        for part in 0..parts {
            sums[i * parts + part] = Four::new(0.0f32);
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
                &mut scores,
                layout,
            );
            finish_scores::<E, M>(
                &mut scores,
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
                let mut largest = most[i];
                #[unroll]
                for j in 0..columns {
                    largest = max(largest, scores[i * columns + j]);
                }
                most_now[i] = largest;
            }
            across_units(&mut most_now, &mut memory.wide, false, layout);
            #[unroll]
            for i in 0..rows {
                let shrink = (most[i] - most_now[i]).exp();
                most[i] = most_now[i];
                let mut total = sum[i] * shrink;
                #[unroll]
                for j in 0..columns {
                    let mut weight = weight(scores[i * columns + j], most[i]);
                    total += weight;
                    if !is_plain {
                        if call.threshold > 0u32 {
                            let by = Drawn {
                                low: low[i],
                                high: high[i],
                            };
                            weight *= factor(
                                &by,
                                tile.key + across * 4 + comptime!(layout.column(j)),
                                call,
                            );
                        }
                    }
                    scores[i * columns + j] = weight;
                }
                sum[i] = total;
                #[unroll]
                for part in 0..parts {
                    sums[i * parts + part] *= Four::new(shrink);
                }
            }
            put_weights::<E>(&mut scores, &mut memory, layout);
            let hides = may_hide(&tile, call, is_plain);
            add_weighted::<E, N>(
                value,
                &own.values,
                tile.key,
                &mut memory,
                &mut sums,
                hides,
                blocks,
                layout,
            );
        }
    }

    across_units(&mut sum, &mut memory.wide, true, layout);
    let seq_q = call.seq_q as usize;
    let contexts = contiguous_rows(own.number, call.seq_q, call.d_value);
    #[unroll]
    for i in 0..rows {
        let row = own.first + down + i * side;
        let at = own.number * seq_q + row;
        if across == 0 && row < seq_q {
            stats[2 * at] = most[i];
            stats[2 * at + 1] = sum[i];
        }
        // At least 1, from the largest score itself, unless nothing was seen; then the
        // context is zero already, and any positive number keeps it.
        sum[i] = max(sum[i], 0.5f32);
        if across == 0 && row < seq_q {
            log_sum_exp[at] = most[i] + sum[i].ln();
        }
    }
    store_sums::<E, N>(context, &contexts, own.first, &sums, &sum, blocks, layout);
}
