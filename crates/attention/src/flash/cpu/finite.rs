//! NaN and infinity in masked rows.
//!
//! A masked key has a weight of zero, and zero times NaN is NaN. The matmuls therefore use a copy
//! without non-finite elements, whose products are then added only for weights that are not zero.

use super::kernel::QUERIES;

/// A copy with non-finite elements replaced by zeros; `None` if nothing is masked or all elements
/// are finite.
#[inline(always)]
pub(super) fn finite_copy(elements: &[f32], may_mask: bool) -> Option<Vec<f32>> {
    /// The exponent bits of infinities and NaN.
    const NON_FINITE: u32 = 0x7f80_0000;
    if !may_mask {
        return None;
    }
    let mut max = 0;
    // A plain loop: a closure would be compiled without the caller's target features.
    for x in elements {
        max = (x.to_bits() & 0x7fff_ffff).max(max);
    }
    if max < NON_FINITE {
        return None;
    }
    let finite = |x: &f32| if x.is_finite() { *x } else { 0.0 };
    Some(elements.iter().map(finite).collect())
}

/// `sums[x][query] += weights[key][query] * rows[key][x]` for the non-finite elements of `rows`
/// and the non-zero weights.
#[cold]
pub(super) fn add_non_finite_by_key(weights: &[f32], rows: &[f32], width: usize, sums: &mut [f32]) {
    for (key, row) in rows.chunks_exact(width).enumerate() {
        let weights = &weights[key * QUERIES..][..QUERIES];
        for (x, element) in non_finite(row) {
            let sums = &mut sums[x * QUERIES..][..QUERIES];
            for (sum, weight) in sums.iter_mut().zip(weights) {
                if *weight != 0.0 {
                    *sum += weight * element;
                }
            }
        }
    }
}

/// `sums[key][x] += weights[key][query] * rows[query][x]`, likewise. `sums` has a row of
/// `stride` elements for each key.
#[cold]
pub(super) fn add_non_finite_by_query(
    weights: &[f32],
    rows: &[f32],
    width: usize,
    (sums, stride): (&mut [f32], usize),
) {
    for (query, row) in rows.chunks_exact(width).enumerate() {
        for (x, element) in non_finite(row) {
            for (sums, weights) in sums
                .chunks_exact_mut(stride)
                .zip(weights.chunks_exact(QUERIES))
            {
                if weights[query] != 0.0 {
                    sums[x] += weights[query] * element;
                }
            }
        }
    }
}

fn non_finite(row: &[f32]) -> impl Iterator<Item = (usize, f32)> {
    row.iter()
        .copied()
        .enumerate()
        .filter(|(_, element)| !element.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_non_finite_elements_are_replaced() {
        let finite = [1.0, f32::MAX, f32::MIN, -0.0, f32::MIN_POSITIVE / 2.0];
        assert_eq!(finite_copy(&finite, true), None);
        for element in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(finite_copy(&[2.0, element], true), Some(vec![2.0, 0.0]));
            assert_eq!(finite_copy(&[2.0, element], false), None);
        }
    }
}
