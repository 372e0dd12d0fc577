//! Operations on one tile, generic over [`Simd`].
//!
//! Queries are mapped to SIMD lanes: a score tile has a row per key and a column per query. The
//! softmax then needs no horizontal reduction, keys and values are read without repacking, and
//! all matmuls of the forward and the backward pass share one function.

use std::f32::consts::LN_2;

use zoo_kernels::cpu::matmul::Scalars;
use zoo_kernels::cpu::{Simd, sigmoid};

use zoo_kernels::cpu::transpose::transpose;

/// Queries in a tile: four AVX-512 registers, eight AVX2 ones.
pub(super) const QUERIES: usize = 64;
/// Keys in a tile. The innermost loops then access 24 KB of scores and 16 KB of queries, which fit
/// into the L1 cache.
pub(super) const KEYS: usize = 96;

/// Rows of `width` elements as the first factor of a matmul.
#[inline(always)]
pub(super) fn rows_of(start: *const f32, width: usize) -> Scalars {
    Scalars {
        start,
        row_stride: width,
        column_stride: 1,
    }
}

/// The columns of rows of `width` elements as the first factor of a matmul.
#[inline(always)]
pub(super) fn columns_of(start: *const f32, width: usize) -> Scalars {
    Scalars {
        start,
        row_stride: 1,
        column_stride: width,
    }
}

/// Transposes up to [`QUERIES`] rows of `width` elements into columns; missing columns are zero.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn rows_to_columns<S: Simd>(rows: &[f32], width: usize, columns: &mut [f32]) {
    let count = rows.len() / width;
    assert!(count <= QUERIES && columns.len() == width * QUERIES);
    if count < QUERIES {
        columns.fill(0.0);
    }
    let (from, into) = ((rows.as_ptr(), width), (columns.as_mut_ptr(), QUERIES));
    // SAFETY: the caller enabled the instructions; the sizes are checked above.
    unsafe { transpose::<S>([count, width], from, into) };
}

/// The inverse of [`rows_to_columns`]: transposes as many columns as `rows` has rows.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn columns_to_rows<S: Simd>(columns: &[f32], rows: &mut [f32], width: usize) {
    let count = rows.len() / width;
    assert!(count <= QUERIES && columns.len() == width * QUERIES);
    let (from, into) = ((columns.as_ptr(), QUERIES), (rows.as_mut_ptr(), width));
    // SAFETY: the caller enabled the instructions; the sizes are checked above.
    unsafe { transpose::<S>([width, count], from, into) };
}

/// Multiplies each column by its factor.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn scale_columns<S: Simd>(rows: &mut [f32], factors: &[f32; QUERIES]) {
    for row in rows.chunks_exact_mut(QUERIES) {
        for lanes in (0..QUERIES).step_by(S::LANES) {
            // SAFETY: the row and the factors have `QUERIES` elements.
            unsafe {
                let element = row.as_mut_ptr().add(lanes);
                let factor = S::load(factors.as_ptr().add(lanes));
                S::store(element, S::mul(S::load(element), factor));
            }
        }
    }
}

/// The dot product of each column of `a` with that of `b`, summed in the same order as in the
/// matmul, so that both are rounded identically.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn column_dots<S: Simd>(a: &[f32], b: &[f32], sums: &mut [f32]) {
    assert!(a.len() == b.len() && a.len().is_multiple_of(QUERIES) && sums.len() == QUERIES);
    for lanes in (0..QUERIES).step_by(S::LANES) {
        // SAFETY: the lengths are checked above.
        unsafe {
            let mut sum = S::splat(0.0);
            for row in (0..a.len()).step_by(QUERIES) {
                let (a, b) = (a.as_ptr().add(row + lanes), b.as_ptr().add(row + lanes));
                sum = S::fma(S::load(a), S::load(b), sum);
            }
            S::store(sums.as_mut_ptr().add(lanes), sum);
        }
    }
}

/// Updates the online softmax with a tile of scores (in base 2). The scores become
/// unnormalised weights, and the context so far is rescaled to the new maximum.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has `keys` rows, `context` `d_value`
/// rows, `max` and `sum` one row, of [`QUERIES`] elements each.
#[inline(always)]
pub(super) unsafe fn online_softmax<S: Simd>(
    keys: usize,
    scores: *mut f32,
    max: *mut f32,
    sum: *mut f32,
    context: *mut f32,
    d_value: usize,
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let scores = scores.add(lanes);
            let old_max = S::load(max.add(lanes));
            // Several accumulators hide the latency of the maximum.
            let mut partial = [old_max; 4];
            for key in 0..keys / 4 {
                for (i, partial) in partial.iter_mut().enumerate() {
                    *partial = S::max(*partial, S::load(scores.add((4 * key + i) * QUERIES)));
                }
            }
            for key in keys / 4 * 4..keys {
                partial[0] = S::max(partial[0], S::load(scores.add(key * QUERIES)));
            }
            let [a, b, c, d] = partial;
            let new_max = S::max(S::max(a, b), S::max(c, d));
            let rescale = S::exp2(S::sub(old_max, new_max));
            S::store(max.add(lanes), new_max);

            let mut total = [S::splat(0.0); 2];
            for key in 0..keys / 2 {
                for (i, total) in total.iter_mut().enumerate() {
                    let score = scores.add((2 * key + i) * QUERIES);
                    let weight = S::exp2(S::sub(S::load(score), new_max));
                    S::store(score, weight);
                    *total = S::add(*total, weight);
                }
            }
            if keys % 2 == 1 {
                let score = scores.add((keys - 1) * QUERIES);
                let weight = S::exp2(S::sub(S::load(score), new_max));
                S::store(score, weight);
                total[0] = S::add(total[0], weight);
            }
            let total = S::add(total[0], total[1]);
            S::store(
                sum.add(lanes),
                S::fma(rescale, S::load(sum.add(lanes)), total),
            );

            // Usually the maximum does not change.
            if S::gt(new_max, old_max) != 0 {
                for row in 0..d_value {
                    let element = context.add(row * QUERIES + lanes);
                    S::store(element, S::mul(rescale, S::load(element)));
                }
            }
        }
    }
}

/// Weights below two to this power are zero in the backward pass.
const MIN_WEIGHT_EXPONENT: f32 = -96.0;

/// Replaces scores by weights, `inverse · 2^(score - max)`, and the gradients of
/// weights by those of scores: `scale · weight · (d_weight - delta)`.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` and `d_weights` have `keys` rows,
/// `max`, `inverse` and `delta` one row, of [`QUERIES`] elements each.
#[inline(always)]
pub(super) unsafe fn softmax_backward<S: Simd>(
    keys: usize,
    scores: *mut f32,
    d_weights: *mut f32,
    [max, inverse, delta]: [*const f32; 3],
    scale: f32,
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let (scale, zero) = (S::splat(scale), S::splat(0.0));
        let lowest = S::splat(MIN_WEIGHT_EXPONENT);
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let max = S::load(max.add(lanes));
            let inverse = S::load(inverse.add(lanes));
            let delta = S::load(delta.add(lanes));
            for key in 0..keys {
                let score = scores.add(key * QUERIES + lanes);
                // No weight exceeds 1, even if a recomputed score is rounded differently.
                let exponent = S::min(zero, S::sub(S::load(score), max));
                let weight = S::mul(inverse, S::exp2(exponent));
                // Products with smaller weights would be subnormal, which is a hundred times slower.
                // Masked keys have no gradients even if the sum of the row is NaN.
                let weight = S::select(S::gt(lowest, exponent), zero, weight);
                S::store(score, weight);
                let d_weight = d_weights.add(key * QUERIES + lanes);
                let difference = S::sub(S::load(d_weight), delta);
                S::store(d_weight, S::mul(S::mul(scale, weight), difference));
            }
        }
    }
}

/// Replaces scores (in base 2) by their sigmoid.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has `keys` rows of [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn sigmoid_weights<S: Simd>(keys: usize, scores: *mut f32) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let (zero, lowest) = (S::splat(0.0), S::splat(-1e30));
        for i in (0..keys * QUERIES).step_by(S::LANES) {
            let score = S::load(scores.add(i));
            let weight = sigmoid::<S>(S::mul(score, S::splat(LN_2)));
            // `sigmoid` clamps its argument. Masked keys have a weight of exactly zero, and so have
            // those that the most negative bias masks.
            let is_masked = S::gt(zero, score) & !S::gt(score, lowest);
            S::store(scores.add(i), S::select(is_masked, zero, weight));
        }
    }
}

/// Replaces scores by their sigmoid, and the gradients of weights by those of scores:
/// `scale · weight · (1 - weight) · d_weight`.
///
/// # Safety
///
/// The instructions of `S` are enabled; both have `keys` rows of [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn sigmoid_backward<S: Simd>(
    keys: usize,
    scores: *mut f32,
    d_weights: *mut f32,
    scale: f32,
) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        sigmoid_weights::<S>(keys, scores);
        let scale = S::splat(scale);
        for i in (0..keys * QUERIES).step_by(S::LANES) {
            let weight = S::load(scores.add(i));
            let slope = S::sub(weight, S::mul(weight, weight));
            let d_weight = S::load(d_weights.add(i));
            S::store(d_weights.add(i), S::mul(S::mul(scale, slope), d_weight));
        }
    }
}

/// Sets the gradients of a tile to zero where the weight is zero: a masked key or value may have
/// made them NaN. Where the weight is NaN they become NaN.
///
/// # Safety
///
/// The instructions of `S` are enabled; both have `keys` rows of [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn clear_masked<S: Simd>(keys: usize, weights: *const f32, d_scores: *mut f32) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let zero = S::splat(0.0);
        for i in (0..keys * QUERIES).step_by(S::LANES) {
            let weight = S::load(weights.add(i));
            let d_score = S::load(d_scores.add(i));
            let cleared = S::select(S::gt(weight, zero), d_score, S::mul(weight, zero));
            S::store(d_scores.add(i), cleared);
        }
    }
}

/// Multiplies a tile by another, element by element.
///
/// # Safety
///
/// The instructions of `S` are enabled; both have `keys` rows of [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(keys: usize, tile: *mut f32, by: *const f32) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        for i in (0..keys * QUERIES).step_by(S::LANES) {
            let product = S::mul(S::load(tile.add(i)), S::load(by.add(i)));
            S::store(tile.add(i), product);
        }
    }
}

/// Sets the scores of one key to minus infinity where the query's bit is not set.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` is a row of [`QUERIES`] elements.
#[inline(always)]
pub(super) unsafe fn mask_scores<S: Simd>(scores: *mut f32, visible: u64) {
    // SAFETY: all accesses are within the bounds the caller guarantees.
    unsafe {
        let masked = S::splat(f32::NEG_INFINITY);
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let score = scores.add(lanes);
            S::store(score, S::select(visible >> lanes, S::load(score), masked));
        }
    }
}
