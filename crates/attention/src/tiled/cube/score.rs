//! From the product of a query and a key to their weight, on the device: the softcap, ALiBi,
//! a bias, what is hidden, and dropout.

use cubecl::prelude::*;

use super::call::Call;

/// Stands for minus infinity in scores: infinities are not part of what WGSL
/// promises, and two of them make a NaN.
pub(super) const LOWEST: f32 = -1e30;

/// What is said of a score: the lowest where the key is hidden, and what a gradient is
/// multiplied by on its way back through the softcap.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Scored {
    pub(super) score: f32,
    pub(super) slope: f32,
}

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

/// The score of a query and a key that are so far into a tile.
#[cube]
pub(super) fn score<M: Numeric>(
    product: f32,
    head: &Head,
    tile: &Tile,
    query_in: usize,
    key_in: usize,
    plan: &[u32],
    table: &[u32],
    mask: &[M],
    bias: &[f32],
    call: &Call,
    #[comptime] is_plain: bool,
    #[comptime] bitmap_words: usize,
    #[comptime] bitmap_keys: usize,
) -> Scored {
    let mut score = product * call.scale;
    let mut slope = 1.0f32;
    let query = tile.query + query_in;
    let key = tile.key + key_in;
    if !is_plain {
        if call.softcap > 0.0f32 {
            let bent = (score / call.softcap).tanh();
            score = bent * call.softcap;
            slope = 1.0f32 - bent * bent;
        }
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
            score += bias[at];
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
        let of_tile = (tile.bitmap - 1) * comptime!(bitmap_words * bitmap_keys);
        let at = call.bitmaps_at as usize + of_tile + key_in * bitmap_words + query_in / 32;
        if (plan[at] >> (query_in as u32 % 32u32)) & 1u32 == 0u32 {
            score = LOWEST;
        }
    }
    Scored { score, slope }
}

/// The weight of a score before it is divided by the sum; nothing where hidden.
#[cube]
pub(super) fn weight(score: f32, most: f32) -> f32 {
    // Asked this way round, what is not a number stays none.
    select(score <= LOWEST, 0.0f32, (score - most).exp())
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
