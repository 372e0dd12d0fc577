//! Attention weights from dot products: softcap, ALiBi, bias, mask and dropout.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::RowAxis;
use super::layout::Layout;
use super::memory::{Rows, Vec4, load_tile, store_tile, tile_row_offset};
use crate::flash::call::{MASKED_SCORE, MIN_VISIBLE_SCORE};

/// The bits of minus infinity: shader compilers may assume that every float is finite.
const NEG_INFINITY_BITS: u32 = 0xff80_0000;

#[derive(CubeType, Clone, Copy)]
pub(super) struct Head {
    pub(super) example: usize,
    pub(super) head: usize,
}

/// A tile: its first query and key, and the number of its bitmap from 1 on, or 0 if it is unmasked.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Tile {
    pub(super) query: usize,
    pub(super) key: usize,
    pub(super) bitmap: usize,
}

/// Adjacent tiles of a row of the plan that share a bitmap.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Run {
    pub(super) first: u32,
    pub(super) end: u32,
    pub(super) bitmap: usize,
}

/// Loads run number `run` of the plan.
#[cube]
pub(super) fn load_run(run: u32, plan: &[u32], call: &Call) -> Run {
    let offset = call.runs_offset as usize + run as usize * 3;
    Run {
        first: plan[offset],
        end: plan[offset + 1],
        bitmap: plan[offset + 2] as usize,
    }
}

/// The query tile of a head that a cube computes, and the runs of key tiles it attends to.
#[derive(CubeType, Clone, Copy)]
pub(super) struct QueryTile {
    pub(super) head: Head,
    /// The index of the head, counted over all examples.
    pub(super) head_index: usize,
    /// The first query.
    pub(super) first: usize,
    pub(super) queries: Rows,
    pub(super) keys: Rows,
    pub(super) values: Rows,
    pub(super) first_run: u32,
    pub(super) end_run: u32,
}

/// The query tile of this cube.
#[cube]
pub(super) fn load_query_tile(plan: &[u32], call: &Call, #[comptime] layout: Layout) -> QueryTile {
    // In descending order: with a causal mask the last queries have the most keys.
    let row_of_tiles = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let offset = example * call.plan_example as usize + row_of_tiles;
    QueryTile {
        head: Head { example, head },
        head_index: example * call.heads as usize + head,
        first: row_of_tiles * comptime!(layout.tile_m()),
        queries: call.query.rows(example, head, call.seq_q, call.d_head),
        keys: call.key.rows(example, kv_head, call.seq_k, call.d_head),
        values: call.value.rows(example, kv_head, call.seq_k, call.d_value),
        first_run: plan[offset],
        end_run: plan[offset + 1],
    }
}

/// The tile of a query tile and key tile number `index` of a run.
#[cube]
pub(super) fn key_tile(
    query_tile: &QueryTile,
    index: u32,
    run: &Run,
    #[comptime] layout: Layout,
) -> Tile {
    Tile {
        query: query_tile.first,
        key: index as usize * comptime!(layout.tile_n()),
        bitmap: run.bitmap,
    }
}

/// Replaces each unit's dot products of a tile by scores; [`MASKED_SCORE`] where masked.
///
/// Options that read global memory are applied in a loop over shared memory. Unrolled in registers
/// they would be separate code for each score.
#[cube]
pub(super) fn finish_scores<E: Float, M: Numeric>(
    products: &mut Array<f32>,
    head: &Head,
    tile: &Tile,
    shared: &mut Shared<[Vec4]>,
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    call: &Call,
    #[comptime] row_axis: RowAxis,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) {
    #[unroll]
    for i in 0..comptime!(layout.unit_elements()) {
        products[i] *= call.scale;
    }
    let mut has_options = tile.bitmap > 0;
    if !is_plain {
        if call.softcap > 0.0f32 {
            #[unroll]
            for i in 0..comptime!(layout.unit_elements()) {
                products[i] = (products[i] / call.softcap).tanh() * call.softcap;
            }
        }
        has_options = has_options || call.has_alibi + call.has_bias + call.has_mask > 0u32;
    }
    if has_options {
        let cube_side = comptime!(layout.cube_side);
        let unit = UNIT_POS as usize;
        store_tile(products, shared, layout);
        for i in 0..comptime!(layout.unit_rows) {
            let row = unit / cube_side + i * cube_side;
            for c in 0..comptime!(layout.unit_vec4s) {
                let vec4 = c * cube_side + unit % cube_side;
                let offset = tile_row_offset(row, layout) + vec4;
                let mut scores = shared[offset];
                #[unroll]
                for j in 0..4usize {
                    let mut query_in = row;
                    let mut key_in = vec4 * 4 + j;
                    if comptime!(row_axis == RowAxis::Keys) {
                        query_in = vec4 * 4 + j;
                        key_in = row;
                    }
                    let score = finish_score::<E, M>(
                        scores.extract(j),
                        head,
                        tile,
                        query_in,
                        key_in,
                        plan,
                        table,
                        mask,
                        bias,
                        call,
                        row_axis,
                        is_plain,
                        layout,
                    );
                    scores.insert(j, score);
                }
                shared[offset] = scores;
            }
        }
        load_tile(products, shared, layout);
    }
}

/// Applies ALiBi, bias and mask to the score of query `query_in` and key `key_in` of a tile.
#[cube]
fn finish_score<E: Float, M: Numeric>(
    capped: f32,
    head: &Head,
    tile: &Tile,
    query_in: usize,
    key_in: usize,
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    call: &Call,
    #[comptime] row_axis: RowAxis,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) -> f32 {
    let mut score = capped;
    if !is_plain {
        let query = tile.query + query_in;
        let key = tile.key + key_in;
        if call.has_alibi != 0u32 {
            // The key that the query is aligned with.
            let position = query as i32 + call.seq_k as i32 - call.seq_q as i32;
            let distance = f32::cast_from((position - key as i32).abs());
            score -= f32::reinterpret(table[head.head]) * distance;
        }
        // Positions out of range are masked below, and bias and mask must not be read there.
        let is_in_range = query < call.seq_q as usize && key < call.seq_k as usize;
        if call.has_bias != 0u32 && is_in_range {
            let offset = call.bias.offset(head, query, key);
            let added = f32::cast_from(bias[offset]);
            score += added;
            // This comparison preserves NaN.
            if score < MIN_VISIBLE_SCORE {
                score = MIN_VISIBLE_SCORE;
            }
            if u32::reinterpret(added) == NEG_INFINITY_BITS {
                score = MASKED_SCORE;
            }
        }
        if call.has_mask != 0u32 && is_in_range {
            let offset = call.mask.offset(head, query, key);
            if u32::cast_from(mask[offset]) != 0u32 {
                score = MASKED_SCORE;
            }
        }
    }
    if tile.bitmap > 0 {
        let [queries, keys] = comptime!(row_axis.tile(layout));
        let words = comptime!(queries.div_ceil(32));
        let bitmap_offset = (tile.bitmap - 1) * comptime!(words * keys);
        let offset = call.bitmaps_offset as usize + bitmap_offset + key_in * words + query_in / 32;
        if (plan[offset] >> (query_in as u32 % 32u32)) & 1u32 == 0u32 {
            score = MASKED_SCORE;
        }
    }
    score
}

/// The derivative of the softcap at an unscaled dot product.
#[cube]
fn softcap_grad(product: f32, call: &Call) -> f32 {
    let tanh = (product * call.scale / call.softcap).tanh();
    1.0f32 - tanh * tanh
}

/// Writes the derivative of the softcap, if there is one, for each unit's dot products of a tile.
#[cube]
pub(super) fn write_softcap_grads(
    products: &Array<f32>,
    softcap_grads: &mut Array<f32>,
    call: &Call,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) {
    if !is_plain {
        if call.softcap > 0.0f32 {
            #[unroll]
            for i in 0..comptime!(layout.unit_elements()) {
                softcap_grads[i] = softcap_grad(products[i], call);
            }
        }
    }
}

/// The unnormalised weight of a score: zero if masked, and at most 1, even if a recomputed score is
/// rounded differently.
#[cube]
pub(super) fn weight(score: f32, row_max: f32) -> f32 {
    let exponent = score - row_max;
    // This comparison preserves NaN.
    let exponent = select(exponent > 0.0f32, 0.0f32, exponent);
    select(score <= MASKED_SCORE, 0.0f32, exponent.exp())
}

/// One over the sum of a row, zero for a fully masked row.
#[cube]
pub(super) fn inverse_sum(sum: f32) -> f32 {
    select(sum == 0.0f32, 0.0f32, 1.0f32 / sum)
}

/// The gradient of a score, zero if the weight is zero: a masked key or value may have made it NaN.
#[cube]
pub(super) fn zero_if_masked(d_score: f32, weight: f32) -> f32 {
    select(weight == 0.0f32, 0.0f32, d_score)
}

/// Whether keys of a tile may be masked.
#[cube]
pub(super) fn may_mask(tile: &Tile, call: &Call, #[comptime] is_plain: bool) -> bool {
    let mut may_mask = tile.bitmap > 0;
    if !is_plain {
        may_mask = may_mask || call.has_bias + call.has_mask > 0u32;
    }
    may_mask
}

/// A 64-bit integer: WGSL has no 64-bit type.
#[derive(CubeType, Clone, Copy)]
pub(super) struct U64 {
    pub(super) low: u32,
    pub(super) high: u32,
}

/// The dropout key of a query (`counter::row_key`), from the seed of its head.
#[cube]
pub(super) fn dropout_key(head: &Head, query: usize, table: &[u32], call: &Call) -> U64 {
    let heads = call.heads as usize;
    let offset = heads + (head.example * heads + head.head) * 2;
    let seed = table[offset];
    let low = seed + query as u32;
    let carry = u32::cast_from(low < seed);
    mix(&U64 {
        low,
        high: table[offset + 1] + carry,
    })
}

/// `counter::mix`.
#[cube]
fn mix(x: &U64) -> U64 {
    let low = x.low + 0x7f4a_7c15u32;
    let carry = u32::cast_from(low < x.low);
    let high = x.high + 0x9e37_79b9u32 + carry;
    let a = mul_u64(
        low ^ ((low >> 30u32) | (high << 2u32)),
        high ^ (high >> 30u32),
        0x1ce4_e5b9u32,
        0xbf58_476du32,
    );
    let b = mul_u64(
        a.low ^ ((a.low >> 27u32) | (a.high << 5u32)),
        a.high ^ (a.high >> 27u32),
        0x1331_11ebu32,
        0x94d0_49bbu32,
    );
    U64 {
        low: b.low ^ ((b.low >> 31u32) | (b.high << 1u32)),
        high: b.high ^ (b.high >> 31u32),
    }
}

/// The lower 64 bits of a product.
#[cube]
fn mul_u64(low: u32, high: u32, by_low: u32, by_high: u32) -> U64 {
    U64 {
        low: low * by_low,
        high: low.mul_hi(by_low) + low * by_high + high * by_low,
    }
}

/// The dropout factor of the weight for a key, with the random number of `counter::random_bits`.
#[cube]
pub(super) fn dropout_factor(row_key: &U64, key: usize, call: &Call) -> f32 {
    let a = row_key.low ^ (key as u32 * 0x9e37_79b9u32);
    let b = (a ^ (a >> 16u32)) * 0x7feb_352du32;
    let c = ((b ^ (b >> 15u32)) ^ row_key.high) * 0x846c_a68bu32;
    let random = c ^ (c >> 16u32);
    select(random < call.dropout_threshold, 0.0f32, call.dropout_scale)
}
