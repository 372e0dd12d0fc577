//! Scores from dot products: softcap, ALiBi, bias, mask and noise; and their tiles.

use cubecl::prelude::*;

use super::call::{Call, Head, KernelArgs};
use super::device_plan::RowAxis;
use super::layout::Layout;
use super::memory::{Matrix, SharedMemory, load_tile, store_tile, tile_row_offset};
use super::program::KernelProgram;
use super::random::add_noise;
use crate::flash::call::{MASKED_SCORE, MIN_VISIBLE_SCORE};

/// The bits of minus infinity: shader compilers may assume that every float is finite.
const NEG_INFINITY_BITS: u32 = 0xff80_0000;

/// A tile: its first query and key, and the number of its bitmap from 1 on, or 0 if it is unmasked.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Tile {
    #[cube(comptime)]
    pub(super) row_axis: RowAxis,
    pub(super) head: Head,
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
#[derive(CubeType)]
pub(super) struct QueryTile<'a, E: Float, N: Size> {
    pub(super) head: Head,
    /// The index of the head, counted over all examples, and over the splits of each head.
    pub(super) head_index: usize,
    pub(super) first: usize,
    pub(super) queries: Matrix<'a, E, N>,
    pub(super) keys: Matrix<'a, E, N>,
    pub(super) values: Matrix<'a, E, N>,
    pub(super) first_run: u32,
    pub(super) end_run: u32,
}

#[cube]
impl<E: Float, N: Size> QueryTile<'_, E, N> {
    /// The context gradients of the tile.
    pub(super) fn d_contexts<'a>(
        &self,
        d_context: &'a [Vector<E, N>],
        call: &Call,
    ) -> Matrix<'a, E, N> {
        let (example, head) = (self.head.example, self.head.head);
        call.d_context
            .matrix(d_context, example, head, call.seq_q, call.d_value)
            .at(self.first)
    }
}

/// The query tile of this cube.
#[cube]
pub(super) fn load_query_tile<'a, E: Float, N: Size, M: Numeric>(
    args: &'a KernelArgs<E, N, M>,
) -> QueryTile<'a, E, N> {
    // In descending order: with a causal mask the last queries have the most keys.
    let plan_row = (args.call.plan_rows - 1 - CUBE_POS_X) as usize;
    let head = Head {
        example: CUBE_POS_Z as usize,
        head: CUBE_POS_Y as usize,
    };
    query_tile_of(args, head, plan_row)
}

/// The query tile of a head and a row of the plan.
#[cube]
pub(super) fn query_tile_of<'a, E: Float, N: Size, M: Numeric>(
    args: &'a KernelArgs<E, N, M>,
    of: Head,
    plan_row: usize,
) -> QueryTile<'a, E, N> {
    let call = &args.call;
    let (example, head) = (of.example, of.head);
    let kv_head = head / call.group as usize;
    let offset = example * call.plan_example as usize + plan_row;
    let splits = call.splits as usize;
    let first = plan_row / splits * comptime!(args.layout.tile_m());
    let queries = call
        .query
        .matrix(args.query, example, head, call.seq_q, call.d_head);
    QueryTile::<'a, E, N> {
        head: Head { example, head },
        head_index: (example * call.heads as usize + head) * splits + plan_row % splits,
        first,
        queries: queries.at(first),
        keys: call
            .key
            .matrix(args.key, example, kv_head, call.seq_k, call.d_head),
        values: call
            .value
            .matrix(args.value, example, kv_head, call.seq_k, call.d_value),
        first_run: args.plan[offset],
        end_run: args.plan[offset + 1],
    }
}

/// The tile of a query tile and key tile number `index` of a run.
#[cube]
pub(super) fn key_tile<E: Float, N: Size>(
    query_tile: &QueryTile<'_, E, N>,
    index: u32,
    run: &Run,
    #[comptime] layout: Layout,
) -> Tile {
    Tile {
        row_axis: RowAxis::Queries,
        head: query_tile.head,
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
pub(super) fn finish_scores<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    tile: &Tile,
    products: &mut Array<f32>,
    memory: &mut SharedMemory<E>,
) {
    let layout = comptime!(args.layout);
    let is_plain = comptime!(args.is_plain);
    let call = &args.call;
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
    if comptime!(args.program == KernelProgram::Sampled) {
        store_tile::<E>(products, memory);
        if has_options {
            apply_options::<E, N, M>(args, tile, memory);
        }
        add_noise::<E, N, M>(args, tile, memory);
        load_tile::<E>(products, memory);
    } else if has_options {
        store_tile::<E>(products, memory);
        apply_options::<E, N, M>(args, tile, memory);
        load_tile::<E>(products, memory);
    }
}

/// Applies ALiBi, bias and mask to the scores of a tile in shared memory, each unit to its own.
#[cube]
fn apply_options<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    tile: &Tile,
    memory: &mut SharedMemory<E>,
) {
    let layout = comptime!(args.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    for i in 0..comptime!(layout.unit_rows) {
        let row = unit / cube_side + i * cube_side;
        for c in 0..comptime!(layout.unit_vec4s) {
            let vec4 = c * cube_side + unit % cube_side;
            let offset = tile_row_offset(row, layout) + vec4;
            let mut scores = memory.full[offset];
            #[unroll]
            for j in 0..4usize {
                let mut query_in = row;
                let mut key_in = vec4 * 4 + j;
                if comptime!(tile.row_axis == RowAxis::Keys) {
                    query_in = vec4 * 4 + j;
                    key_in = row;
                }
                let capped = scores.extract(j);
                let score = finish_score::<E, N, M>(args, tile, query_in, key_in, capped);
                scores.insert(j, score);
            }
            memory.full[offset] = scores;
        }
    }
}

/// Applies ALiBi, bias and mask to the score of query `query_in` and key `key_in` of a tile.
#[cube]
fn finish_score<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    tile: &Tile,
    query_in: usize,
    key_in: usize,
    capped: f32,
) -> f32 {
    let is_plain = comptime!(args.is_plain);
    let call = &args.call;
    let mut score = capped;
    if !is_plain {
        let query = tile.query + query_in;
        let key = tile.key + key_in;
        if call.has_alibi != 0u32 {
            // The key that the query is aligned with.
            let position = query as i32 + call.seq_k as i32 - call.seq_q as i32;
            let distance = f32::cast_from((position - key as i32).abs());
            score -= f32::reinterpret(args.table[tile.head.head]) * distance;
        }
        let (example, head) = (tile.head.example, tile.head.head);
        // Positions out of range are masked below, and bias and mask must not be read there.
        let is_in_range = query < call.seq_q as usize && key < call.seq_k as usize;
        if call.has_bias != 0u32 && is_in_range {
            let mut offset = call.bias.offset(example, head, query, key);
            if call.has_bias == 2u32 {
                let relative = key + call.seq_q as usize - 1 - query;
                offset = call.bias.offset(example, head, 0usize, relative);
            }
            let added = f32::cast_from(args.bias[offset]);
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
            let offset = call.mask.offset(example, head, query, key);
            if u32::cast_from(args.mask[offset]) != 0u32 {
                score = MASKED_SCORE;
            }
        }
    }
    if tile.bitmap > 0 {
        let [queries, keys] = comptime!(tile.row_axis.tile(args.layout.tile()));
        let words = comptime!(queries.div_ceil(32));
        let bitmap_offset = (tile.bitmap - 1) * comptime!(words * keys);
        let offset = call.bitmaps_offset as usize + bitmap_offset + key_in * words + query_in / 32;
        if (args.plan[offset] >> (query_in as u32 % 32u32)) & 1u32 == 0u32 {
            score = MASKED_SCORE;
        }
    }
    score
}

/// Writes the derivative of the softcap, if there is one, at each unit's dot products of a tile.
#[cube]
pub(super) fn write_softcap_grads(
    products: &mut Array<f32>,
    softcap_grads: &mut Array<f32>,
    call: &Call,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) {
    if !is_plain {
        if call.softcap > 0.0f32 {
            #[unroll]
            for i in 0..comptime!(layout.unit_elements()) {
                let tanh = (products[i] * call.scale / call.softcap).tanh();
                softcap_grads[i] = 1.0f32 - tanh * tanh;
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

#[cube]
pub(super) fn may_mask(tile: &Tile, call: &Call, #[comptime] is_plain: bool) -> bool {
    let mut may_mask = tile.bitmap > 0;
    if !is_plain {
        may_mask = may_mask || call.has_bias + call.has_mask > 0u32;
    }
    may_mask
}
