//! Hard attention: the selected key of each query, and the noise of samples.

use std::f32::consts::{LN_2, LOG2_E};

use zoo_kernels::cpu::Simd;

use super::call::Tile;
use super::kernel::QUERIES;
use crate::counter::{LN_1P, random_bits, row_key};

/// The best key of each query of a tile so far.
pub(super) struct Selection {
    scores: [f32; QUERIES],
    /// Indices of keys; exact up to 2^24.
    keys: [f32; QUERIES],
    /// Bits of queries with a visible score that is NaN.
    nan: u64,
}

/// The index of a query without a visible key.
pub(super) const NO_KEY: f32 = -1.0;

impl Selection {
    pub(super) fn new() -> Self {
        Self {
            scores: [f32::NEG_INFINITY; QUERIES],
            keys: [NO_KEY; QUERIES],
            nan: 0,
        }
    }

    /// Compares with the scores of a tile. The first of equal scores is the best.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled; `scores` has a row for each key of the tile.
    #[inline(always)]
    pub(super) unsafe fn update<S: Simd>(&mut self, tile: &Tile<'_>, scores: &[f32]) {
        assert!(scores.len() >= tile.keys.len() * QUERIES);
        // SAFETY: the lengths are checked above.
        unsafe {
            let (lowest, zero) = (S::splat(f32::NEG_INFINITY), S::splat(0.0));
            for lanes in (0..QUERIES).step_by(S::LANES) {
                let mut best = S::load(self.scores.as_ptr().add(lanes));
                let mut index = S::load(self.keys.as_ptr().add(lanes));
                for (row, key) in tile.keys.iter().enumerate() {
                    let score = S::load(scores.as_ptr().add(row * QUERIES + lanes));
                    let is_better = S::gt(score, best);
                    best = S::select(is_better, score, best);
                    index = S::select(is_better, S::splat(key as f32), index);
                    // Neither above minus infinity nor negative.
                    let is_number = S::gt(score, lowest) | S::gt(zero, score);
                    let all = (1 << S::LANES) - 1;
                    self.nan |= (!is_number & all) << lanes;
                }
                S::store(self.scores.as_mut_ptr().add(lanes), best);
                S::store(self.keys.as_mut_ptr().add(lanes), index);
            }
        }
    }

    /// The selected key of a query, [`NO_KEY`], or NaN if a score is.
    pub(super) fn key(&self, query: usize) -> f32 {
        if self.nan >> query & 1 == 1 {
            return f32::NAN;
        }
        self.keys[query]
    }
}

/// Adds Gumbel noise to the scores of a tile, in base 2.
///
/// The compiler vectorises these plain loops over a row of queries.
#[inline(always)]
pub(super) fn add_gumbel_noise(seed: u64, first_head: usize, tile: &Tile<'_>, scores: &mut [f32]) {
    let (mut low, mut high) = ([0; QUERIES], [0; QUERIES]);
    for (i, query) in tile.queries.iter().enumerate() {
        // Inverted, so that dropout with the same seed is independent.
        [low[i], high[i]] = row_key(!seed, [tile.example, first_head + tile.head, query]);
    }
    for (row, key) in scores.chunks_exact_mut(QUERIES).zip(tile.keys.iter()) {
        for (i, score) in row.iter_mut().enumerate() {
            let noise = gumbel(random_bits([low[i], high[i]], key as u32));
            *score += LOG2_E * noise;
        }
    }
}

/// `-ln(-ln(u))` with `u = (bits + 0.5) / 2^32`, which is neither 0 nor 1.
#[inline(always)]
pub(crate) fn gumbel(bits: u32) -> f32 {
    const UNIT: f32 = 1.0 / 4_294_967_296.0;
    // Near 1, `u` has no precision left, but its distance to 1 has.
    let u = (bits as f32 + 0.5) * UNIT;
    let below_one = (!bits as f32 + 0.5) * UNIT;
    let is_near_one = below_one < 0.25;
    let (mantissa, exponent) = split(u);
    let (f, exponent) = if is_near_one {
        (-below_one, 0.0)
    } else {
        (mantissa - 1.0, exponent)
    };
    let exponential = -exponent.mul_add(LN_2, ln_1p(f));
    let (mantissa, exponent) = split(exponential);
    -exponent.mul_add(LN_2, ln_1p(mantissa - 1.0))
}

/// A positive number as `mantissa · 2^exponent` with a mantissa from `sqrt(1/2)` to `sqrt(2)`.
#[inline(always)]
fn split(x: f32) -> (f32, f32) {
    let bits = x.to_bits() as i32;
    let exponent = (bits - 0x3f35_04f3) >> 23;
    let mantissa = f32::from_bits((bits - (exponent << 23)) as u32);
    (mantissa, exponent as f32)
}

/// `ln(1 + x)` for `|x| <= 0.4143`.
///
/// The relative error of `x - x²/2 + x³·P(x)` is below 2e-7.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    let mut sum = LN_1P[0];
    for coefficient in &LN_1P[1..] {
        sum = sum.mul_add(x, *coefficient);
    }
    let square = x * x;
    (square * x).mul_add(sum, square.mul_add(-0.5, x))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_matches_the_definition() {
        let exact = |bits: u32| {
            let fraction = (f64::from(bits) + 0.5) / 2f64.powi(32);
            -(-fraction.ln()).ln()
        };
        let spread = (0..200_000u32).map(|i| i.wrapping_mul(21_475));
        let extremes = (0..64).flat_map(|i| [i, u32::MAX - i, 1 << (i % 32)]);
        let mut worst = 0f64;
        for bits in spread.chain(extremes) {
            let error = (f64::from(gumbel(bits)) - exact(bits)).abs();
            worst = worst.max(error / exact(bits).abs().max(1.0));
        }
        assert!(worst < 5e-7, "relative error {worst:e}");
    }
}
