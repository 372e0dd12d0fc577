//! Windows and Gaussian factors around a predicted position.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use zoo_kernels::cpu::Simd;

use super::kernel::QUERIES;

/// The predicted positions of a tile of queries.
pub(super) struct Positions {
    /// Padded with the last.
    values: [f32; QUERIES],
    /// The last key that each query may attend to, if queries are sorted by position and attention
    /// is causal.
    last_keys: Option<[f32; QUERIES]>,
    window: f32,
}

impl Positions {
    /// The positions of up to [`QUERIES`] queries, in rows of one or two columns: the position, and
    /// the last key.
    pub(super) fn new(rows: &[f32], columns: usize, window: f32) -> Self {
        let column = |index: usize| {
            let mut values = [0.0; QUERIES];
            let last = rows.chunks_exact(columns).last();
            values.fill(last.map_or(0.0, |row| row[index]));
            for (into, row) in values.iter_mut().zip(rows.chunks_exact(columns)) {
                *into = row[index];
            }
            values
        };
        Self {
            values: column(0),
            last_keys: (columns > 1).then(|| column(1)),
            window,
        }
    }

    /// Whether all windows exclude these keys.
    pub(super) fn exclude(&self, keys: &Range<usize>) -> bool {
        let (first, last) = (keys.start as f32, (keys.end - 1) as f32);
        let mut is_any_visible = false;
        for (i, position) in self.values.into_iter().enumerate() {
            let is_outside = first - position > self.window || position - last > self.window;
            let is_later = self.last_keys.is_some_and(|keys| first > keys[i]);
            is_any_visible |= !is_outside && !is_later;
        }
        !is_any_visible
    }

    /// Masks the scores of keys outside of the window, and writes the Gaussian factors of the
    /// others, multiplied by `factors` if `accumulate`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    pub(super) unsafe fn apply<S: Simd>(
        &self,
        keys: &Range<usize>,
        scores: &mut [f32],
        factors: &mut [f32],
        accumulate: bool,
    ) {
        assert!(scores.len() >= keys.len() * QUERIES && factors.len() >= keys.len() * QUERIES);
        // SAFETY: the lengths are checked above.
        unsafe {
            let (window, zero) = (S::splat(self.window), S::splat(0.0));
            let exponent = S::splat(-2.0 * LOG2_E / (self.window * self.window));
            let masked = S::splat(f32::NEG_INFINITY);
            for (row, key) in keys.clone().enumerate() {
                for lanes in (0..QUERIES).step_by(S::LANES) {
                    let position = S::load(self.values.as_ptr().add(lanes));
                    let distance = S::sub(S::splat(key as f32), position);
                    let abs = S::max(distance, S::sub(zero, distance));
                    let offset = row * QUERIES + lanes;
                    let score = scores.as_mut_ptr().add(offset);
                    // A position that is NaN masks nothing; its factors are NaN.
                    let mut is_masked = S::gt(abs, window);
                    if let Some(last_keys) = &self.last_keys {
                        let last = S::load(last_keys.as_ptr().add(lanes));
                        is_masked |= S::gt(S::splat(key as f32), last);
                    }
                    S::store(score, S::select(is_masked, masked, S::load(score)));
                    let factor = S::exp2(S::mul(exponent, S::mul(distance, distance)));
                    let into = factors.as_mut_ptr().add(offset);
                    let factor = match accumulate {
                        true => S::mul(factor, S::load(into)),
                        false => factor,
                    };
                    S::store(into, factor);
                }
            }
        }
    }

    /// Accumulates the gradient of each position: `Σ_key weight · d_weight · 4 (key - position) /
    /// window²`, where `d_weight` includes the factors. It is given as the gradient of the score,
    /// `d_score = weight · (d_weight - delta)`.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled.
    #[inline(always)]
    pub(super) unsafe fn backward<S: Simd>(
        &self,
        keys: &Range<usize>,
        [weights, d_scores, delta]: [&[f32]; 3],
        d_positions: &mut [f32],
    ) {
        let count = keys.len() * QUERIES;
        assert!(weights.len() >= count && d_scores.len() >= count);
        assert!(delta.len() >= QUERIES && d_positions.len() >= QUERIES);
        // SAFETY: the lengths are checked above.
        unsafe {
            let zero = S::splat(0.0);
            let slope = S::splat(4.0 / (self.window * self.window));
            for lanes in (0..QUERIES).step_by(S::LANES) {
                let position = S::load(self.values.as_ptr().add(lanes));
                let delta = S::load(delta.as_ptr().add(lanes));
                let mut sum = zero;
                for (row, key) in keys.clone().enumerate() {
                    let offset = row * QUERIES + lanes;
                    let weight = S::load(weights.as_ptr().add(offset));
                    let d_score = S::load(d_scores.as_ptr().add(offset));
                    let product = S::fma(weight, delta, d_score);
                    let distance = S::sub(S::splat(key as f32), position);
                    let term = S::mul(product, S::mul(slope, distance));
                    // Masked keys have a weight of zero, and NaN stays NaN.
                    let none = S::mul(weight, zero);
                    sum = S::add(sum, S::select(S::gt(weight, zero), term, none));
                }
                let into = d_positions.as_mut_ptr().add(lanes);
                S::store(into, S::add(S::load(into), sum));
            }
        }
    }
}
