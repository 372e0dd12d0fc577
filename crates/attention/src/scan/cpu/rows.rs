//! Plain loops over the rows of a chunk, which the compiler vectorizes.

use std::mem::MaybeUninit;

use zoo_kernels::cpu::dispatch;

use super::CHUNK;
use super::matmul::strip_width;

/// Partial sums of a row: the lanes of the widest register.
const LANES: usize = 16;

/// Below this sum of weights a query gets zeros, as in [`normalizer`](crate::scan::normalizer).
const NEGLIGIBLE: f32 = 1e-30;

/// One over a sum of weights; zero where the sum is negligible.
#[inline(always)]
pub(super) fn reciprocal(total: f32) -> f32 {
    if total < NEGLIGIBLE { 0.0 } else { 1.0 / total }
}

#[inline(always)]
fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// The dot product of two rows of equal length.
#[inline(always)]
pub(in crate::scan) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    let mut sum = sum_lanes(lanes);
    for (a, b) in a_rest.iter().zip(b_rest) {
        sum += a * b;
    }
    sum
}

dispatch! {
    /// Sets the scores of a chunk to zero above the diagonal, after multiplying those below it by
    /// `γ^(i - j)` if there are `decays`: `decays[x] = γ^(CHUNK - 1 - x)` for `x < CHUNK`.
    pub(super) fn finish_scores(count: usize, decays: &[f32], scores: &mut [f32])
        by finish_scores_by;
}

#[inline(always)]
fn finish_scores_by(count: usize, decays: &[f32], scores: &mut [f32]) {
    for (i, row) in scores.chunks_exact_mut(CHUNK).take(count).enumerate() {
        let row = &mut row[..strip_width(i)];
        if decays.is_empty() {
            row[i + 1..].fill(0.0);
            continue;
        }
        // In whole blocks: the compiler then needs no loops for remainders.
        let decays = decays[CHUNK - 1 - i..].as_chunks::<LANES>().0;
        let blocks = row.as_chunks_mut::<LANES>().0.iter_mut();
        for (block, (scores, decays)) in blocks.zip(decays).enumerate() {
            for lane in 0..LANES {
                // Not multiplied by zero, which would make infinity NaN.
                let is_visible = block * LANES + lane <= i;
                let score = scores[lane] * decays[lane];
                scores[lane] = if is_visible { score } else { 0.0 };
            }
        }
    }
}

dispatch! {
    /// The sum of the weights of each query: of its row of scores, if any, and of its features times
    /// the sums of earlier keys' features.
    pub(super) fn denominators(
        scores: &[f32],
        features: &[f32],
        totals: &[f32],
        into: &mut [f32],
    ) by denominators_by;
}

#[inline(always)]
fn denominators_by(scores: &[f32], features: &[f32], totals: &[f32], into: &mut [f32]) {
    let wide = totals.len();
    for (i, into) in into.iter_mut().enumerate() {
        let mut lanes = [0.0; LANES];
        let features = features[i * wide..][..wide].as_chunks::<LANES>().0;
        for (feature, total) in features.iter().zip(totals.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                lanes[lane] += feature[lane] * total[lane];
            }
        }
        if !scores.is_empty() {
            let row = &scores[i * CHUNK..][..strip_width(i)];
            for scores in row.as_chunks::<LANES>().0 {
                for lane in 0..LANES {
                    lanes[lane] += scores[lane];
                }
            }
        }
        *into = sum_lanes(lanes);
    }
}

dispatch! {
    /// Multiplies each row by its factor, from rows with a stride to contiguous rows.
    pub(super) fn scale_into(
        factors: &[f32],
        from: &[f32],
        from_stride: usize,
        into: &mut [MaybeUninit<f32>],
        width: usize,
    ) by scale_into_by;
}

#[inline(always)]
fn scale_into_by(
    factors: &[f32],
    from: &[f32],
    from_stride: usize,
    into: &mut [MaybeUninit<f32>],
    width: usize,
) {
    for (i, (into, factor)) in into.chunks_exact_mut(width).zip(factors).enumerate() {
        for (to, element) in into.iter_mut().zip(&from[i * from_stride..][..width]) {
            to.write(factor * element);
        }
    }
}

dispatch! {
    /// Multiplies each row of `width` elements by its factor, in place.
    pub(in crate::scan) fn scale_rows(factors: &[f32], rows: &mut [f32], width: usize) by scale_rows_by;
}

#[inline(always)]
fn scale_rows_by(factors: &[f32], rows: &mut [f32], width: usize) {
    for (row, factor) in rows.chunks_exact_mut(width).zip(factors) {
        for element in row {
            *element *= factor;
        }
    }
}

dispatch! {
    /// Multiplies all elements by a factor.
    pub(in crate::scan) fn scale(factor: f32, elements: &mut [f32]) by scale_by;
}

#[inline(always)]
fn scale_by(factor: f32, elements: &mut [f32]) {
    for element in elements {
        *element *= factor;
    }
}

dispatch! {
    /// Adds all rows, of the width of `sums`.
    pub(super) fn add_rows(rows: &[f32], sums: &mut [f32]) by add_rows_by;
}

#[inline(always)]
fn add_rows_by(rows: &[f32], sums: &mut [f32]) {
    for row in rows.chunks_exact(sums.len()) {
        for (sum, element) in sums.iter_mut().zip(row) {
            *sum += element;
        }
    }
}

dispatch! {
    /// `into[x] = a · before[x] + b · added[x]`
    pub(super) fn combine(a: f32, before: &[f32], b: f32, added: &mut [f32]) by combine_by;
}

#[inline(always)]
fn combine_by(a: f32, before: &[f32], b: f32, added: &mut [f32]) {
    for (added, before) in added.iter_mut().zip(before) {
        *added = a * before + b * *added;
    }
}

dispatch! {
    /// Whether an element is infinite or NaN.
    pub(in crate::scan) fn has_non_finite(elements: &[f32]) -> bool by has_non_finite_by;
}

#[inline(always)]
fn has_non_finite_by(elements: &[f32]) -> bool {
    /// The exponent bits of infinities and NaN.
    const NON_FINITE: u32 = 0x7f80_0000;
    let mut max = 0;
    for x in elements {
        max = (x.to_bits() & 0x7fff_ffff).max(max);
    }
    max >= NON_FINITE
}

dispatch! {
    /// The largest element; the number of elements is a multiple of 16.
    pub(super) fn largest(elements: &[f32]) -> f32 by largest_by;
}

#[inline(always)]
fn largest_by(elements: &[f32]) -> f32 {
    let mut lanes = [f32::MIN; LANES];
    for block in elements.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            let x = block[lane];
            lanes[lane] = if x > lanes[lane] { x } else { lanes[lane] };
        }
    }
    let mut max = f32::MIN;
    for lane in lanes {
        max = if lane > max { lane } else { max };
    }
    max
}

dispatch! {
    /// `factor · |x|²` of each row.
    pub(super) fn norms(factor: f32, rows: &[f32], stride: usize, width: usize, into: &mut [f32])
        by norms_by;
}

#[inline(always)]
fn norms_by(factor: f32, rows: &[f32], stride: usize, width: usize, into: &mut [f32]) {
    for (i, into) in into.iter_mut().enumerate() {
        let row = &rows[i * stride..][..width];
        *into = factor * dot(row, row);
    }
}

/// Rows of output gradients, and what they are divided by.
#[derive(Clone, Copy)]
pub(super) struct OutputGrads<'a> {
    pub(super) d_context: &'a [f32],
    /// Row stride of `d_context`.
    pub(super) stride: usize,
    /// `[count, d_value]`
    pub(super) context: &'a [f32],
    pub(super) denominators: &'a [f32],
    pub(super) d_value: usize,
}

dispatch! {
    /// The gradients of the sums before the division: `[dO / n, -(dO · O) / n]` in padded rows.
    pub(super) fn sum_grads(grads: OutputGrads<'_>, count: usize, wide: usize, into: &mut [f32])
        by sum_grads_by;
}

#[inline(always)]
fn sum_grads_by(grads: OutputGrads<'_>, count: usize, wide: usize, into: &mut [f32]) {
    let d_value = grads.d_value;
    for (i, into) in into.chunks_exact_mut(wide).take(count).enumerate() {
        let d_context = &grads.d_context[i * grads.stride..][..d_value];
        let (sums, rest) = into.split_at_mut(d_value);
        rest.fill(0.0);
        let factor = reciprocal(grads.denominators[i]);
        for (sum, d) in sums.iter_mut().zip(d_context) {
            *sum = factor * d;
        }
        rest[0] = -factor * dot(d_context, &grads.context[i * d_value..][..d_value]);
    }
}

dispatch! {
    /// `d · φ` in place, of padded rows, and the sum of each row.
    pub(super) fn weigh(features: &[f32], wide: usize, d_features: &mut [f32], sums: &mut [f32])
        by weigh_by;
}

#[inline(always)]
fn weigh_by(features: &[f32], wide: usize, d_features: &mut [f32], sums: &mut [f32]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        let features = features[i * wide..][..wide].as_chunks::<LANES>().0;
        let d_features = d_features[i * wide..][..wide].as_chunks_mut::<LANES>().0;
        let mut lanes = [0.0; LANES];
        for (feature, d) in features.iter().zip(d_features) {
            for lane in 0..LANES {
                d[lane] *= feature[lane];
                lanes[lane] += d[lane];
            }
        }
        *sum = sum_lanes(lanes);
    }
}

/// Rows with a stride.
#[derive(Clone, Copy)]
pub(super) struct Strided<'a> {
    pub(super) rows: &'a [f32],
    pub(super) stride: usize,
}

dispatch! {
    /// `scale · (direction - sum · scale · x)` of each row.
    pub(super) fn random_feature_grads(
        scale: f32,
        directions: Strided<'_>,
        x: Strided<'_>,
        sums: &[f32],
        into: &mut [MaybeUninit<f32>],
        width: usize,
    ) by random_feature_grads_by;
}

#[inline(always)]
fn random_feature_grads_by(
    scale: f32,
    directions: Strided<'_>,
    x: Strided<'_>,
    sums: &[f32],
    into: &mut [MaybeUninit<f32>],
    width: usize,
) {
    for (i, (into, sum)) in into.chunks_exact_mut(width).zip(sums).enumerate() {
        let x = &x.rows[i * x.stride..][..width];
        let directions = &directions.rows[i * directions.stride..][..width];
        let along = sum * scale;
        for ((to, x), direction) in into.iter_mut().zip(x).zip(directions) {
            to.write(scale * (direction - along * x));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_elements_are_found() {
        let finite = [1.0, f32::MAX, f32::MIN, -0.0, f32::MIN_POSITIVE / 2.0];
        assert!(!has_non_finite(&finite));
        for element in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(has_non_finite(&[2.0, element]));
        }
    }
}
