//! From products of queries and keys to scores, and what options do on the way.
//!
//! A tile has a row for each key and a column for each query. Scores are in units of
//! log 2 throughout, as the powers of two want them.

use std::f32::consts::LOG2_E;

use zoo_kernels::cpu::Simd;

use super::call::{Call, Tile};
use super::kernel::{QUERIES, hide};
use crate::Dropout;
use crate::counter::draw;
use crate::pattern::rule::place;

/// Products become scores: capped, lowered with the distance, biased, hidden.
///
/// `slope`, if it is as large as a tile, gets what gradients are multiplied by on their
/// way back through the softcap.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has a row for each key of the tile.
#[inline(always)]
pub(super) unsafe fn finish_scores<S: Simd>(
    call: &Call<'_>,
    tile: &Tile,
    scores: &mut [f32],
    slope: &mut [f32],
) {
    let count = tile.keys.len();
    assert!(scores.len() >= count * QUERIES);
    // SAFETY: the tile is as large as was just seen, and the slope is looked at.
    unsafe {
        if let Some(cap) = call.softcap {
            assert!(slope.is_empty() || slope.len() >= count * QUERIES);
            let slope = (!slope.is_empty()).then_some(slope.as_mut_ptr());
            soften::<S>(count * QUERIES, scores.as_mut_ptr(), cap * LOG2_E, slope);
        }
        if let Some(slopes) = call.alibi {
            let first = place(&call.shape, tile.queries.start);
            let fall = slopes[tile.head] * LOG2_E;
            for (at, key) in tile.keys.clone().enumerate() {
                let row = &mut scores[at * QUERIES..][..QUERIES];
                for (query, score) in row.iter_mut().enumerate() {
                    let distance = (first + query as i64 - key as i64) as f32;
                    *score -= fall * distance.abs();
                }
            }
        }
        if let Some(bias) = call.bias {
            for (at, key) in tile.keys.clone().enumerate() {
                let row = &mut scores[at * QUERIES..][..QUERIES];
                for (score, query) in row.iter_mut().zip(tile.queries.clone()) {
                    *score = biased(*score, bias.at([tile.example, tile.head, query, key]));
                }
            }
        }
        if !tile.is_whole || call.hidden.is_some() {
            let head = [tile.example, tile.head];
            for (at, key) in tile.keys.clone().enumerate() {
                let seen = call.seen(head, tile.queries.clone(), key);
                hide::<S>(scores[at * QUERIES..].as_mut_ptr(), seen);
            }
        }
    }
}

/// A score in units of log 2 with a bias in natural units added. Minus infinity hides the key;
/// any other sum is finite, however large the constant that somebody masks with.
#[inline(always)]
pub(super) fn biased(score: f32, bias: f32) -> f32 {
    /// Still finite in units of log 2.
    const LOWEST_BIAS: f32 = -2e38;
    const LOWEST_SCORE: f32 = LOWEST_BIAS * LOG2_E;
    if bias == f32::NEG_INFINITY {
        return bias;
    }
    // `f32::max` would lose NaN.
    let bias = if bias < LOWEST_BIAS {
        LOWEST_BIAS
    } else {
        bias
    };
    let sum = score + LOG2_E * bias;
    if sum < LOWEST_SCORE {
        LOWEST_SCORE
    } else {
        sum
    }
}

/// `cap · tanh(score / cap)` for each score, and `1 - tanh²` where it is asked for.
///
/// # Safety
///
/// The instructions of `S` are enabled; `count` is a multiple of `S::LANES`, and as many
/// numbers can be read and written.
#[inline(always)]
pub(super) unsafe fn soften<S: Simd>(
    count: usize,
    scores: *mut f32,
    cap: f32,
    slope: Option<*mut f32>,
) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        let (cap, share) = (S::splat(cap), S::splat(1.0 / cap));
        for at in (0..count).step_by(S::LANES) {
            let bent = tanh::<S>(S::mul(S::load(scores.add(at)), share));
            S::store(scores.add(at), S::mul(cap, bent));
            if let Some(slope) = slope {
                let rest = S::sub(S::splat(1.0), S::mul(bent, bent));
                S::store(slope.add(at), rest);
            }
        }
    }
}

/// `tanh(x)`, off by 3e-7 of the result at most.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn tanh<S: Simd>(x: S::Vector) -> S::Vector {
    /// Below, the quotient would lose digits; `x + x³·P(x²)` does not.
    const SMALL: f32 = 0.625;
    /// `P`, highest power first: the Remez exchange for the smallest relative error (4.1e-9).
    const POLYNOMIAL: [f32; 5] = [
        -5.717_045_6e-3,
        2.065_058_8e-2,
        -5.374_349_7e-2,
        1.333_149_1e-1,
        -3.333_328_4e-1,
    ];
    // SAFETY: as the caller promised.
    unsafe {
        let zero = S::splat(0.0);
        let size = S::max(x, S::sub(zero, x));
        let square = S::mul(x, x);
        let mut power = S::splat(POLYNOMIAL[0]);
        for coefficient in &POLYNOMIAL[1..] {
            power = S::fma(power, square, S::splat(*coefficient));
        }
        let near = S::fma(S::mul(power, square), x, x);

        let falling = S::exp2(S::mul(size, S::splat(-2.0 * LOG2_E)));
        let one = S::splat(1.0);
        let far = S::div(S::sub(one, falling), S::add(one, falling));
        let far = S::choose(S::above(zero, x), S::sub(zero, far), far);
        S::choose(S::above(size, S::splat(SMALL)), far, near)
    }
}

/// What dropout multiplies the weights of a tile by.
///
/// Plain loops over a row of queries: the compiler makes vectors of them.
#[inline(always)]
pub(super) fn write_factors(dropout: &Dropout, tile: &Tile, factors: &mut [f32]) {
    let (mut low, mut high) = ([0; QUERIES], [0; QUERIES]);
    for (at, query) in tile.queries.clone().enumerate() {
        [low[at], high[at]] = dropout.row([tile.example, tile.head, query]);
    }
    let (threshold, factor) = (dropout.threshold(), dropout.factor());
    for (row, key) in factors.chunks_exact_mut(QUERIES).zip(tile.keys.clone()) {
        for (at, into) in row.iter_mut().enumerate() {
            let drawn = draw([low[at], high[at]], key as u32);
            *into = if drawn < threshold { 0.0 } else { factor };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zoo_kernels::cpu::Portable;

    #[test]
    fn tanh_is_as_good_as_it_says() {
        // SAFETY: `Portable` needs no instructions.
        let tanh = |x: f32| unsafe { tanh::<Portable>([x; 8]) }[0];
        let mut worst = 0f64;
        let mut x = -12.0f32;
        while x <= 12.0 {
            let exact = f64::from(x).tanh();
            if exact != 0.0 {
                worst = worst.max(((f64::from(tanh(x)) - exact) / exact).abs());
            }
            x += 0.000_317;
        }
        assert!(worst < 3e-7, "off by {worst:e}");
        assert_eq!([0.0, 50.0, -50.0].map(tanh), [0.0, 1.0, -1.0]);
        assert!(tanh(f32::NAN).is_nan());
    }
}
