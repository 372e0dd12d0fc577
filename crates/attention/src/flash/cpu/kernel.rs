//! The pieces of tiled attention on one tile, over any [`Simd`].
//!
//! Queries lie across the lanes: a tile of scores is held with a row per key and
//! a column per query. Softmax then never adds up within a register, keys and
//! values are read where they are, one number at a time, and all matmuls of the
//! forward and the backward pass are the same one.

use zoo_kernels::cpu::Simd;

/// Queries in a tile: four AVX-512 registers, eight AVX2 ones.
pub(super) const QUERIES: usize = 64;
/// Keys in a tile. With it, what the innermost loops touch is 24 KB of scores and
/// 16 KB of queries: the first-level cache holds both.
pub(super) const KEYS: usize = 96;

/// Rows of numbers become columns: `into` gets `columns` rows of `rows` numbers.
///
/// # Safety
///
/// The instructions of `S` are enabled; `from` can be read and `into` written in these
/// sizes, with their rows as far apart as is said beside them, and do not overlap.
#[inline(always)]
unsafe fn transpose<S: Simd>(
    [rows, columns]: [usize; 2],
    (from, from_stride): (*const f32, usize),
    (into, into_stride): (*mut f32, usize),
) {
    let whole_rows = rows / S::LANES * S::LANES;
    let whole_columns = columns / S::LANES * S::LANES;
    // SAFETY: all places are within what the caller promised.
    unsafe {
        for row in (0..whole_rows).step_by(S::LANES) {
            for column in (0..whole_columns).step_by(S::LANES) {
                S::transpose(
                    from.add(row * from_stride + column),
                    from_stride,
                    into.add(column * into_stride + row),
                    into_stride,
                );
            }
        }
        for row in 0..rows {
            let left = if row < whole_rows { whole_columns } else { 0 };
            for column in left..columns {
                *into.add(column * into_stride + row) = *from.add(row * from_stride + column);
            }
        }
    }
}

/// At most [`QUERIES`] rows of `width` numbers become columns, with zeros for those that
/// are not there.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn turn<S: Simd>(rows: &[f32], width: usize, turned: &mut [f32]) {
    let count = rows.len() / width;
    assert!(count <= QUERIES && turned.len() == width * QUERIES);
    if count < QUERIES {
        turned.fill(0.0);
    }
    let (from, into) = ((rows.as_ptr(), width), (turned.as_mut_ptr(), QUERIES));
    // SAFETY: as the caller promised, and checked here.
    unsafe { transpose::<S>([count, width], from, into) };
}

/// The other way: columns become rows, as many as there is room for.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn turn_back<S: Simd>(turned: &[f32], rows: &mut [f32], width: usize) {
    let count = rows.len() / width;
    assert!(count <= QUERIES && turned.len() == width * QUERIES);
    let (from, into) = ((turned.as_ptr(), QUERIES), (rows.as_mut_ptr(), width));
    // SAFETY: as the caller promised, and checked here.
    unsafe { transpose::<S>([width, count], from, into) };
}

/// Multiplies each row of [`QUERIES`] numbers by the factor of its column.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn scale_columns<S: Simd>(rows: &mut [f32], factors: &[f32; QUERIES]) {
    for row in rows.chunks_exact_mut(QUERIES) {
        for lanes in (0..QUERIES).step_by(S::LANES) {
            // SAFETY: within the row and the factors, which are as long.
            unsafe {
                let place = row.as_mut_ptr().add(lanes);
                let factor = S::load(factors.as_ptr().add(lanes));
                S::store(place, S::mul(S::load(place), factor));
            }
        }
    }
}

/// Adds up the products of two tiles of columns, column by column and row after row:
/// the order of the [`matmul`], to the last digit.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub(super) unsafe fn products_of_columns<S: Simd>(a: &[f32], b: &[f32], sums: &mut [f32]) {
    assert!(a.len() == b.len() && a.len().is_multiple_of(QUERIES) && sums.len() == QUERIES);
    for lanes in (0..QUERIES).step_by(S::LANES) {
        // SAFETY: within rows of as many numbers, as checked.
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

/// Takes a tile of scores (in units of log 2) into the running softmax of its
/// queries: scores become weights, still to be divided by the sum, and the
/// context so far is scaled to the new largest score.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` has `keys` rows, `context` `d_value`
/// rows, `largest` and `sum` one row, of [`QUERIES`] numbers each.
#[inline(always)]
pub(super) unsafe fn online_softmax<S: Simd>(
    keys: usize,
    scores: *mut f32,
    largest: *mut f32,
    sum: *mut f32,
    context: *mut f32,
    d_value: usize,
) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let scores = scores.add(lanes);
            let before = S::load(largest.add(lanes));
            // Several at once: a maximum takes longer than it takes to start the next.
            let mut most = [before; 4];
            for key in 0..keys / 4 {
                for (at, most) in most.iter_mut().enumerate() {
                    *most = S::max(*most, S::load(scores.add((4 * key + at) * QUERIES)));
                }
            }
            for key in keys / 4 * 4..keys {
                most[0] = S::max(most[0], S::load(scores.add(key * QUERIES)));
            }
            let now = S::max(S::max(most[0], most[1]), S::max(most[2], most[3]));
            let shrink = S::exp2(S::sub(before, now));
            S::store(largest.add(lanes), now);

            let mut total = [S::splat(0.0); 2];
            for key in 0..keys / 2 {
                for (at, total) in total.iter_mut().enumerate() {
                    let place = scores.add((2 * key + at) * QUERIES);
                    let weight = S::exp2(S::sub(S::load(place), now));
                    S::store(place, weight);
                    *total = S::add(*total, weight);
                }
            }
            if keys % 2 == 1 {
                let place = scores.add((keys - 1) * QUERIES);
                let weight = S::exp2(S::sub(S::load(place), now));
                S::store(place, weight);
                total[0] = S::add(total[0], weight);
            }
            let total = S::add(total[0], total[1]);
            S::store(
                sum.add(lanes),
                S::fma(shrink, S::load(sum.add(lanes)), total),
            );

            // Mostly the largest score was in an earlier tile.
            if S::above(now, before) != 0 {
                for row in 0..d_value {
                    let place = context.add(row * QUERIES + lanes);
                    S::store(place, S::mul(shrink, S::load(place)));
                }
            }
        }
    }
}

/// Scores become weights, `inverse · 2^(score - largest)` in units of log 2, and the gradients
/// by weights become those by scores: `scale · weight · (d_weight - mean)`.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` and `d_weights` have `keys` rows,
/// `largest`, `inverse` and `mean` one row, of [`QUERIES`] numbers each.
#[inline(always)]
pub(super) unsafe fn softmax_backward<S: Simd>(
    keys: usize,
    scores: *mut f32,
    d_weights: *mut f32,
    [largest, inverse, mean]: [*const f32; 3],
    scale: f32,
) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        let (scale, zero) = (S::splat(scale), S::splat(0.0));
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let largest = S::load(largest.add(lanes));
            let inverse = S::load(inverse.add(lanes));
            let mean = S::load(mean.add(lanes));
            for key in 0..keys {
                let place = scores.add(key * QUERIES + lanes);
                // No weight exceeds 1, even if a score were rounded differently this time.
                let exponent = S::min(zero, S::sub(S::load(place), largest));
                let weight = S::mul(inverse, S::exp2(exponent));
                S::store(place, weight);
                let place = d_weights.add(key * QUERIES + lanes);
                let difference = S::sub(S::load(place), mean);
                S::store(place, S::mul(S::mul(scale, weight), difference));
            }
        }
    }
}

/// Sets the gradients of a tile to zero where the weight is zero: a hidden key or value may
/// have made them NaN. Where the weight is NaN they become NaN.
///
/// # Safety
///
/// The instructions of `S` are enabled; both have `keys` rows of [`QUERIES`] numbers.
#[inline(always)]
pub(super) unsafe fn clear_hidden<S: Simd>(keys: usize, weights: *const f32, d_scores: *mut f32) {
    // SAFETY: all elements are within what the caller promised.
    unsafe {
        let zero = S::splat(0.0);
        for at in (0..keys * QUERIES).step_by(S::LANES) {
            let weight = S::load(weights.add(at));
            let d_score = S::load(d_scores.add(at));
            let cleared = S::choose(S::above(weight, zero), d_score, S::mul(weight, zero));
            S::store(d_scores.add(at), cleared);
        }
    }
}

/// Multiplies a tile by another, place by place.
///
/// # Safety
///
/// The instructions of `S` are enabled; both have `keys` rows of [`QUERIES`] numbers.
#[inline(always)]
pub(super) unsafe fn multiply<S: Simd>(keys: usize, tile: *mut f32, by: *const f32) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        for at in (0..keys * QUERIES).step_by(S::LANES) {
            let product = S::mul(S::load(tile.add(at)), S::load(by.add(at)));
            S::store(tile.add(at), product);
        }
    }
}

/// Sets the scores of one key to minus infinity where the query's bit is not set.
///
/// # Safety
///
/// The instructions of `S` are enabled; `scores` is a row of [`QUERIES`] numbers.
#[inline(always)]
pub(super) unsafe fn hide<S: Simd>(scores: *mut f32, seen: u64) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        let nothing = S::splat(f32::NEG_INFINITY);
        for lanes in (0..QUERIES).step_by(S::LANES) {
            let place = scores.add(lanes);
            S::store(place, S::choose(seen >> lanes, S::load(place), nothing));
        }
    }
}
