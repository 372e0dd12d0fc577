//! From the product of a query and a key to their weight, on the device: the softcap, ALiBi,
//! a bias, what is hidden, and dropout.

use cubecl::prelude::*;

use super::call::Call;
use super::device_plan::Rowwise;
use super::layout::Layout;
use super::memory::{Four, Rows, put_numbers, take_numbers, weights_of_row};

/// Stands for minus infinity in the scores of hidden keys: infinities are not part of what
/// WGSL promises, and two of them make a NaN. Half as large as the largest number, so that a
/// difference of two scores is finite.
pub(super) const LOWEST: f32 = -2e38;

/// The least score of a key that is not hidden, however negative its bias is.
const LEAST_VISIBLE: f32 = -1e38;

/// The bits of minus infinity. Compilers of shaders may take every number for finite, but not
/// its bits.
const MINUS_INFINITY: u32 = 0xff80_0000;

/// A head of an example, and what is kept for it.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Head {
    pub(super) example: usize,
    pub(super) head: usize,
}

/// A tile: where it begins, and the number of its bitmap from 1 on, or 0 if everyone
/// sees everything in it.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Tile {
    pub(super) query: usize,
    pub(super) key: usize,
    pub(super) bitmap: usize,
}

/// Neighbouring tiles of a row of the plan that share a bitmap.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Run {
    pub(super) first: u32,
    /// The first tile after them.
    pub(super) end: u32,
    pub(super) bitmap: usize,
}

/// Run number `run` of the plan.
#[cube]
pub(super) fn run_of_plan(run: u32, plan: &[u32], call: &Call) -> Run {
    let at = call.runs_at as usize + run as usize * 3;
    Run {
        first: plan[at],
        end: plan[at + 1],
        bitmap: plan[at + 2] as usize,
    }
}

/// The tile of queries of one head that a cube computes, and the keys that they attend to.
#[derive(CubeType, Clone, Copy)]
pub(super) struct QueryTile {
    pub(super) head: Head,
    /// Heads before this one, those of other examples included.
    pub(super) number: usize,
    /// The first query.
    pub(super) first: usize,
    pub(super) queries: Rows,
    pub(super) keys: Rows,
    pub(super) values: Rows,
    /// The first run of the plan.
    pub(super) begin: u32,
    /// The first run after them.
    pub(super) end: u32,
}

/// The tile of queries of this cube.
#[cube]
pub(super) fn query_tile(plan: &[u32], call: &Call, #[comptime] layout: Layout) -> QueryTile {
    // The last queries first: where the pattern is causal they have the most to do.
    let row_of_tiles = (call.plan_rows - 1 - CUBE_POS_X) as usize;
    let example = CUBE_POS_Z as usize;
    let head = CUBE_POS_Y as usize;
    let kv_head = head / call.group as usize;
    let at = example * call.plan_example as usize + row_of_tiles;
    QueryTile {
        head: Head { example, head },
        number: example * call.heads as usize + head,
        first: row_of_tiles * comptime!(layout.down()),
        queries: call.query.rows(example, head, call.seq_q, call.d_head),
        keys: call.key.rows(example, kv_head, call.seq_k, call.d_head),
        values: call.value.rows(example, kv_head, call.seq_k, call.d_value),
        begin: plan[at],
        end: plan[at + 1],
    }
}

/// These queries and tile number `at` of the keys, which is one of a run.
#[cube]
pub(super) fn tile_of_keys(
    own: &QueryTile,
    at: u32,
    run: &Run,
    #[comptime] layout: Layout,
) -> Tile {
    Tile {
        query: own.first,
        key: at as usize * comptime!(layout.across()),
        bitmap: run.bitmap,
    }
}

/// Makes scores of each unit's products of a tile: the lowest where a key is hidden.
///
/// What needs memory to be read is done on the scores in shared memory, where a loop can
/// count them; in registers each would need instructions of its own, and a kernel has many.
#[cube]
pub(super) fn finish_scores<E: Float, M: Numeric>(
    products: &mut Array<f32>,
    head: &Head,
    tile: &Tile,
    shared: &mut Shared<[Four]>,
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    call: &Call,
    #[comptime] rowwise: Rowwise,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) {
    #[unroll]
    for at in 0..comptime!(layout.own()) {
        products[at] *= call.scale;
    }
    let mut has_more = tile.bitmap > 0;
    if !is_plain {
        if call.softcap > 0.0f32 {
            #[unroll]
            for at in 0..comptime!(layout.own()) {
                products[at] = (products[at] / call.softcap).tanh() * call.softcap;
            }
        }
        has_more = has_more || call.has_alibi + call.has_bias + call.has_mask > 0u32;
    }
    if has_more {
        let side = comptime!(layout.side);
        let unit = UNIT_POS as usize;
        put_numbers(products, shared, layout);
        for i in 0..comptime!(layout.rows) {
            let down = unit / side + i * side;
            for c in 0..comptime!(layout.fours) {
                let across = c * side + unit % side;
                let at = weights_of_row(down, layout) + across;
                let mut scores = shared[at];
                #[unroll]
                for j in 0..4usize {
                    let mut query_in = down;
                    let mut key_in = across * 4 + j;
                    if comptime!(rowwise == Rowwise::Keys) {
                        query_in = across * 4 + j;
                        key_in = down;
                    }
                    let score = finish::<E, M>(
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
                        rowwise,
                        is_plain,
                        layout,
                    );
                    scores.insert(j, score);
                }
                shared[at] = scores;
            }
        }
        take_numbers(products, shared, layout);
    }
}

/// The score of a query and a key that are so far into a tile.
#[cube]
fn finish<E: Float, M: Numeric>(
    bent: f32,
    head: &Head,
    tile: &Tile,
    query_in: usize,
    key_in: usize,
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[E],
    call: &Call,
    #[comptime] rowwise: Rowwise,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) -> f32 {
    let mut score = bent;
    if !is_plain {
        let query = tile.query + query_in;
        let key = tile.key + key_in;
        if call.has_alibi != 0u32 {
            // The key that the query is level with.
            let own = query as i32 + call.seq_k as i32 - call.seq_q as i32;
            let far = f32::cast_from((own - key as i32).abs());
            score -= f32::reinterpret(table[head.head]) * far;
        }
        // What is not there is hidden below, and must not be read.
        let is_there = query < call.seq_q as usize && key < call.seq_k as usize;
        if call.has_bias != 0u32 && is_there {
            let at = head.example * call.bias_example as usize
                + head.head * call.bias_head as usize
                + query * call.bias_query as usize
                + key * call.bias_key as usize;
            let added = f32::cast_from(bias[at]);
            score += added;
            // Asked this way round, NaN stays.
            if score < LEAST_VISIBLE {
                score = LEAST_VISIBLE;
            }
            if u32::reinterpret(added) == MINUS_INFINITY {
                score = LOWEST;
            }
        }
        if call.has_mask != 0u32 && is_there {
            let at = head.example * call.mask_example as usize
                + head.head * call.mask_head as usize
                + query * call.mask_query as usize
                + key * call.mask_key as usize;
            if u32::cast_from(mask[at]) != 0u32 {
                score = LOWEST;
            }
        }
    }
    if tile.bitmap > 0 {
        // Queries and keys of a tile.
        let [queries, keys] = comptime!(rowwise.tile(layout));
        let words = comptime!(queries.div_ceil(32));
        let of_tile = (tile.bitmap - 1) * comptime!(words * keys);
        let at = call.bitmaps_at as usize + of_tile + key_in * words + query_in / 32;
        if (plan[at] >> (query_in as u32 % 32u32)) & 1u32 == 0u32 {
            score = LOWEST;
        }
    }
    score
}

/// What a gradient by a score is multiplied by on its way back through the softcap to the
/// product.
#[cube]
fn slope(product: f32, call: &Call) -> f32 {
    let bent = (product * call.scale / call.softcap).tanh();
    1.0f32 - bent * bent
}

/// The slopes of each unit's products of a tile, if there is a softcap.
#[cube]
pub(super) fn write_slopes(
    products: &Array<f32>,
    slopes: &mut Array<f32>,
    call: &Call,
    #[comptime] is_plain: bool,
    #[comptime] layout: Layout,
) {
    if !is_plain {
        if call.softcap > 0.0f32 {
            #[unroll]
            for at in 0..comptime!(layout.own()) {
                slopes[at] = slope(products[at], call);
            }
        }
    }
}

/// The weight of a score before it is divided by the sum; nothing where hidden, and never more
/// than 1, even if the score were rounded differently when the maximum was found.
#[cube]
pub(super) fn weight(score: f32, most: f32) -> f32 {
    let below = score - most;
    // Asked this way round, NaN stays.
    let below = select(below > 0.0f32, 0.0f32, below);
    select(score <= LOWEST, 0.0f32, below.exp())
}

/// One over the sum of a row, zero if the row is fully masked.
#[cube]
pub(super) fn inverse_of_sum(sum: f32) -> f32 {
    select(sum == 0.0f32, 0.0f32, 1.0f32 / sum)
}

/// The gradient by a score, zero where the weight is zero: a hidden key or value may have made
/// it NaN.
#[cube]
pub(super) fn visible(d_score: f32, weight: f32) -> f32 {
    select(weight == 0.0f32, 0.0f32, d_score)
}

/// Whether a weight of a tile may be zero because its key is hidden.
#[cube]
pub(super) fn may_hide(tile: &Tile, call: &Call, #[comptime] is_plain: bool) -> bool {
    let mut may_hide = tile.bitmap > 0;
    if !is_plain {
        may_hide = may_hide || call.has_bias + call.has_mask > 0u32;
    }
    may_hide
}

/// What the weights of a query are drawn by. It is `counter::row_key`.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Drawn {
    pub(super) low: u32,
    pub(super) high: u32,
}

/// What the weights of a query are drawn by, from what was worked out for its head.
#[cube]
pub(super) fn drawn_by(head: &Head, query: usize, table: &[u32], call: &Call) -> Drawn {
    let heads = call.heads as usize;
    let at = heads + (head.example * heads + head.head) * 2;
    let seed = table[at];
    let low = seed + query as u32;
    let carry = u32::cast_from(low < seed);
    mixed(&Drawn {
        low,
        high: table[at + 1] + carry,
    })
}

/// `counter::mix`, on two halves.
#[cube]
fn mixed(x: &Drawn) -> Drawn {
    let low = x.low + 0x7f4a_7c15u32;
    let carry = u32::cast_from(low < x.low);
    let high = x.high + 0x9e37_79b9u32 + carry;
    let a = times(
        low ^ ((low >> 30u32) | (high << 2u32)),
        high ^ (high >> 30u32),
        0x1ce4_e5b9u32,
        0xbf58_476du32,
    );
    let b = times(
        a.low ^ ((a.low >> 27u32) | (a.high << 5u32)),
        a.high ^ (a.high >> 27u32),
        0x1331_11ebu32,
        0x94d0_49bbu32,
    );
    Drawn {
        low: b.low ^ ((b.low >> 31u32) | (b.high << 1u32)),
        high: b.high ^ (b.high >> 31u32),
    }
}

/// The lower 64 bits of a product.
#[cube]
fn times(low: u32, high: u32, by_low: u32, by_high: u32) -> Drawn {
    Drawn {
        low: low * by_low,
        high: low.mul_hi(by_low) + low * by_high + high * by_low,
    }
}

/// What dropout multiplies the weight for a key by. It draws by `counter::draw`.
#[cube]
pub(super) fn factor(by: &Drawn, key: usize, call: &Call) -> f32 {
    let a = by.low ^ (key as u32 * 0x9e37_79b9u32);
    let b = (a ^ (a >> 16u32)) * 0x7feb_352du32;
    let c = ((b ^ (b >> 15u32)) ^ by.high) * 0x846c_a68bu32;
    let drawn = c ^ (c >> 16u32);
    select(drawn < call.threshold, 0.0f32, call.factor)
}
