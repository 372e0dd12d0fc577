//! Counter-based random numbers: dropout factors and Gumbel noise.

use std::f32::consts::LN_2;

use cubecl::prelude::*;

use super::call::{Call, Head, KernelArgs};
use super::device_plan::RowAxis;
use super::memory::{SharedMemory, tile_row_offset, unit_position};
use super::program::KernelProgram;
use super::score::{QueryTile, Tile};
use crate::counter::LN_1P;

/// A 64-bit integer: WGSL has no 64-bit type.
#[derive(CubeType, Clone, Copy)]
pub(super) struct U64 {
    pub(super) low: u32,
    pub(super) high: u32,
}

/// What a random number is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stream {
    Dropout,
    Noise,
}

/// The key of the random numbers of a query (`counter::row_key`), from the seed of its head.
#[cube]
pub(super) fn row_key(
    head: &Head,
    query: usize,
    table: &[u32],
    call: &Call,
    #[comptime] program: KernelProgram,
    #[comptime] stream: Stream,
) -> U64 {
    let heads = call.heads as usize;
    let first = heads + comptime!(program.seeds_offset());
    let offset = first + (head.example * heads + head.head) * comptime!(program.seeds_stride());
    let offset = offset + comptime!(2 * stream as usize);
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

/// `counter::random_bits` for the key of a query.
#[cube]
fn random_bits(low: u32, high: u32, key: usize) -> u32 {
    let a = low ^ (key as u32 * 0x9e37_79b9u32);
    let b = (a ^ (a >> 16u32)) * 0x7feb_352du32;
    let c = ((b ^ (b >> 15u32)) ^ high) * 0x846c_a68bu32;
    c ^ (c >> 16u32)
}

/// The dropout factor of the weight for a key.
#[cube]
pub(super) fn dropout_factor(low: u32, high: u32, key: usize, call: &Call) -> f32 {
    let random = random_bits(low, high, key);
    select(random < call.dropout_threshold, 0.0f32, call.dropout_scale)
}

/// The dropout keys of a unit's rows of a query tile, if there is dropout.
#[cube]
pub(super) fn load_dropout_keys<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    query_tile: &QueryTile<'_, E, N>,
    low: &mut Array<u32>,
    high: &mut Array<u32>,
) {
    let layout = comptime!(args.layout);
    let program = comptime!(args.program);
    let call = &args.call;
    if comptime!(!args.is_plain) {
        if call.dropout_threshold > 0u32 {
            let (unit_row, _) = unit_position(layout);
            #[unroll]
            for i in 0..comptime!(layout.unit_rows) {
                let row = query_tile.first + unit_row + i * comptime!(layout.cube_side);
                let head = &query_tile.head;
                let stream = comptime!(Stream::Dropout);
                let key = row_key(head, row, args.table, call, program, stream);
                low[i] = key.low;
                high[i] = key.high;
            }
        }
    }
}

/// Adds Gumbel noise to the scores of a tile in shared memory, each unit to its own.
#[cube]
pub(super) fn add_noise<E: Float, N: Size, M: Numeric>(
    args: &KernelArgs<E, N, M>,
    tile: &Tile,
    memory: &mut SharedMemory<E>,
) {
    let layout = comptime!(args.layout);
    let program = comptime!(args.program);
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    let (unit_row, unit_column) = (unit / cube_side, unit % cube_side);
    let mut low = Array::<u32>::new(4usize);
    let mut high = Array::<u32>::new(4usize);
    // The key of a query is computed once for all its keys of the unit.
    let has_query_rows = comptime!(tile.row_axis == RowAxis::Queries);
    let [outer, inner] = comptime!(if has_query_rows {
        [layout.unit_rows, layout.unit_vec4s]
    } else {
        [layout.unit_vec4s, layout.unit_rows]
    });
    for a in 0..outer {
        #[unroll]
        for j in 0..4usize {
            if comptime!(!has_query_rows || j == 0) {
                let mut query = tile.query + unit_row + a * cube_side;
                if !has_query_rows {
                    query = tile.query + (unit_column + a * cube_side) * 4 + j;
                }
                let key = row_key(
                    &tile.head,
                    query,
                    args.table,
                    &args.call,
                    program,
                    Stream::Noise,
                );
                low[j] = key.low;
                high[j] = key.high;
            }
        }
        for b in 0..inner {
            let mut row = unit_row + a * cube_side;
            let mut vec4 = unit_column + b * cube_side;
            if !has_query_rows {
                row = unit_row + b * cube_side;
                vec4 = unit_column + a * cube_side;
            }
            let offset = tile_row_offset(row, layout) + vec4;
            let mut scores = memory.full[offset];
            #[unroll]
            for j in 0..4usize {
                let of = comptime!(if has_query_rows { 0 } else { j });
                let mut key = tile.key + vec4 * 4 + j;
                if !has_query_rows {
                    key = tile.key + row;
                }
                let noise = gumbel(random_bits(low[of], high[of], key));
                scores.insert(j, scores.extract(j) + noise);
            }
            memory.full[offset] = scores;
        }
    }
}

/// `-ln(-ln(u))` with `u = (bits + 0.5) / 2^32`, computed as by the CPU kernels: WGSL guarantees few
/// digits of a logarithm near zero.
#[cube]
fn gumbel(bits: u32) -> f32 {
    let u = (f32::cast_from(bits) + 0.5f32) * UNIT;
    // Near 1, `u` has no precision left, but its distance to 1 has.
    let below_one = (f32::cast_from(!bits) + 0.5f32) * UNIT;
    let is_near_one = below_one < 0.25f32;
    let split_u = split(u);
    let f = select(is_near_one, -below_one, split_u.mantissa - 1.0f32);
    let exponent = select(is_near_one, 0.0f32, split_u.exponent);
    let exponential = -fma(exponent, LN_2, ln_1p(f));
    let split_exponential = split(exponential);
    -fma(
        split_exponential.exponent,
        LN_2,
        ln_1p(split_exponential.mantissa - 1.0f32),
    )
}

const UNIT: f32 = 1.0 / 4_294_967_296.0;

/// A positive number as `mantissa · 2^exponent` with a mantissa from `sqrt(1/2)` to `sqrt(2)`.
#[derive(CubeType, Clone, Copy)]
struct Split {
    mantissa: f32,
    exponent: f32,
}

#[cube]
fn split(x: f32) -> Split {
    let bits = u32::reinterpret(x);
    // The exponent plus 256: unsigned, and the bits of sqrt(1/2) have an exponent of zero.
    let biased = (bits + 0x40ca_fb0du32) >> 23u32;
    Split {
        mantissa: f32::reinterpret(bits - (biased << 23u32) + 0x8000_0000u32),
        exponent: f32::cast_from(biased) - 256.0f32,
    }
}

/// `ln(1 + x)` for `|x| <= 0.4143`, with a relative error below 2e-7.
#[cube]
#[allow(clippy::needless_range_loop)] // unrolled loops need a range
fn ln_1p(x: f32) -> f32 {
    let mut sum = comptime!(LN_1P[0]).runtime();
    #[unroll]
    for i in 1..comptime!(LN_1P.len()) {
        sum = fma(sum, x, comptime!(LN_1P[i]));
    }
    let square = x * x;
    fma(square * x, sum, fma(square, -0.5f32, x))
}
