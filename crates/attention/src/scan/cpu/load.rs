//! Keys, values and queries of a chunk: features in padded rows, with zeros for masked and for
//! non-finite rows.
//!
//! In causal order the diagonal blocks of a matmul multiply later keys by zero, and zero times NaN
//! is NaN. So non-finite rows become zeros, and the results that depend on them are set to NaN
//! afterwards: those of all queries from the first such key on, and the gradients of all keys up to
//! the last such query.

use std::f32::consts::LOG2_E;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::CHUNK;
use super::activation::{self, Elementwise, LOWEST, Size};
use super::call::{Call, Head, Widths};
use super::matmul::{Factor, multiply};
use super::rows::{self, Strided};
use crate::scan::call::ScanMap;
use zoo_kernels::cpu::matmul::Accumulate;

/// The shift of exponents before the first key: below those of ordinary keys, above [`LOWEST`].
pub(super) const NO_SHIFT: f32 = LOWEST / 10.0;

/// The factor by which the exponentials of a chunk's keys are divided, as a logarithm to base 2.
pub(super) enum Shift<'a> {
    /// The maximum so far, which these keys may raise.
    Raised(&'a mut f32),
    /// Known from the forward pass.
    Saved(f32),
}

/// Loads keys and values and returns the index of the first non-finite one that is not masked.
pub(super) fn load_keys(
    call: &Call<'_>,
    head: Head,
    keys: &Range<usize>,
    shift: Shift<'_>,
    features: &mut [f32],
    values: &mut [f32],
) -> Option<usize> {
    let widths = call.widths();
    let count = keys.len();
    let from = [head.example, head.kv_head];
    let features = &mut features[..count * widths.wide_features];
    let values = &mut values[..count * widths.wide_sums];
    let key = Strided {
        rows: call.key.rows(from, keys),
        stride: call.key.stride(),
    };
    match call.elementwise() {
        Some(kind) => map_elementwise(call, kind, key, call.scale[1], count, features),
        None => key_exponents(call, key, count, features),
    }
    let value = Strided {
        rows: call.value.rows(from, keys),
        stride: call.value.stride(),
    };
    copy_rows(call, value, count, values);
    if call.is_normalised() {
        for sums in values.chunks_exact_mut(widths.wide_sums) {
            sums[widths.d_value] = 1.0;
        }
    }

    let mut hidden = 0;
    for (i, key) in keys.clone().enumerate() {
        hidden |= u64::from(call.is_masked(head, key)) << i;
    }
    let mut first_bad = None;
    if call.is_causal {
        let bad = non_finite_rows(features, widths.wide_features)
            | non_finite_rows(values, widths.wide_sums);
        let bad = bad & !hidden;
        first_bad = (bad != 0).then_some(bad.trailing_zeros() as usize);
        hidden |= bad;
    }
    fill_rows(values, widths.wide_sums, hidden, 0.0);
    if let ScanMap::Exponential(_) = call.map {
        fill_rows(features, widths.wide_features, hidden, LOWEST);
        let shift = match shift {
            Shift::Raised(shift) => {
                *shift = shift.max(rows::largest(features));
                *shift
            }
            Shift::Saved(shift) => shift,
        };
        let (len, start) = (features.len(), features.as_mut_ptr());
        // SAFETY: the processor supports the set; rows are padded to multiples of 16.
        unsafe { activation::exponentials(call.set, len, shift, start) };
    }
    fill_rows(features, widths.wide_features, hidden, 0.0);
    first_bad
}

/// `φ(q)` in padded rows.
pub(super) fn map_queries(
    call: &Call<'_>,
    [example, query_head]: [usize; 2],
    queries: &Range<usize>,
    features: &mut [f32],
) {
    let widths = call.widths();
    let count = queries.len();
    let features = &mut features[..count * widths.wide_features];
    let query = Strided {
        rows: call.query.rows([example, query_head], queries),
        stride: call.query.stride(),
    };
    match call.elementwise() {
        Some(kind) => map_elementwise(call, kind, query, call.scale[0], count, features),
        None => {
            project(call, query, count, features);
            let (size, start) = (feature_size(&widths, count), features.as_mut_ptr());
            let factor = call.scale[0] * LOG2_E;
            // A factor per query cancels out: neither its norm nor the maximum matters.
            // SAFETY: the processor supports the set; `features` has padded rows.
            unsafe { activation::row_exponentials(call.set, size, factor, start) };
        }
    }
}

fn feature_size(widths: &Widths, count: usize) -> Size {
    Size {
        count,
        width: widths.features,
        wide: widths.wide_features,
    }
}

fn map_elementwise(
    call: &Call<'_>,
    kind: Elementwise,
    from: Strided<'_>,
    scale: f32,
    count: usize,
    into: &mut [f32],
) {
    let size = feature_size(&call.widths(), count);
    map_rows(call, kind, size, scale, from, into);
}

/// Copies values or their gradients to rows that are padded with zeros. One vectorized loop: a call
/// of `memcpy` for each row takes longer than the copy.
pub(super) fn copy_rows(call: &Call<'_>, from: Strided<'_>, count: usize, into: &mut [f32]) {
    let widths = call.widths();
    let size = Size {
        count,
        width: widths.d_value,
        wide: widths.wide_sums,
    };
    map_rows(call, Elementwise::Identity, size, 1.0, from, into);
}

fn map_rows(
    call: &Call<'_>,
    kind: Elementwise,
    size: Size,
    scale: f32,
    from: Strided<'_>,
    into: &mut [f32],
) {
    let count = size.count;
    assert!(
        into.len() == count * size.wide
            && from.rows.len() >= (count - 1) * from.stride + size.width,
        "features out of bounds"
    );
    let (from, into) = ((from.rows.as_ptr(), from.stride), into.as_mut_ptr());
    // SAFETY: the processor supports the set; the sizes are checked above.
    unsafe { activation::map_rows(call.set, kind, size, scale, from, into) };
}

/// `ω · x` for all directions.
fn project(call: &Call<'_>, from: Strided<'_>, count: usize, into: &mut [f32]) {
    let ScanMap::Exponential(directions) = call.map else {
        return;
    };
    let Widths {
        d_head,
        wide_features,
        ..
    } = call.widths();
    multiply(
        call.set,
        [count, d_head, wide_features],
        Factor::rows(from.rows, from.stride),
        (&directions.columns, wide_features),
        (into, wide_features),
        Accumulate::Overwrite,
    );
}

/// `ω · x - |x|² / 2` in base 2, for `x` times the scale of keys.
fn key_exponents(call: &Call<'_>, key: Strided<'_>, count: usize, into: &mut [f32]) {
    let widths = call.widths();
    project(call, key, count, into);
    let scale = call.scale[1];
    let mut half_norms = [0.0; CHUNK];
    let half_norms = &mut half_norms[..count];
    let factor = 0.5 * LOG2_E * scale * scale;
    rows::norms(factor, key.rows, key.stride, widths.d_head, half_norms);
    let size = feature_size(&widths, count);
    let (half_norms, start) = (half_norms.as_ptr(), into.as_mut_ptr());
    // SAFETY: the processor supports the set; `into` has padded rows, and a half norm for each.
    unsafe { activation::exponents(call.set, size, scale * LOG2_E, half_norms, start) };
}

/// A bit for each row with a non-finite element.
pub(super) fn non_finite_rows(elements: &[f32], width: usize) -> u64 {
    if !rows::has_non_finite(elements) {
        return 0;
    }
    let mut bits = 0;
    for (i, row) in elements.chunks_exact(width).enumerate() {
        bits |= u64::from(row.iter().any(|x| !x.is_finite())) << i;
    }
    bits
}

/// Fills the rows whose bits are set.
pub(super) fn fill_rows<T: Copy>(elements: &mut [T], width: usize, mut bits: u64, element: T) {
    while bits != 0 {
        let row = bits.trailing_zeros() as usize;
        elements[row * width..][..width].fill(element);
        bits &= bits - 1;
    }
}

/// Rows of queries or keys with their features, to which gradients belong.
pub(super) struct Mapped<'a> {
    pub(super) rows: Strided<'a>,
    pub(super) scale: f32,
    pub(super) features: &'a [f32],
    /// Whether a common factor of the features of a row cancels out.
    pub(super) is_scale_free: bool,
}

/// Writes the gradients of contiguous rows, from those of their features. The latter are
/// overwritten.
pub(super) fn write_grads(
    call: &Call<'_>,
    mapped: &Mapped<'_>,
    d_features: &mut [f32],
    directions_scratch: &mut [f32],
    into: &mut [MaybeUninit<f32>],
) {
    let widths = call.widths();
    let count = into.len() / widths.d_head;
    if count == 0 {
        return;
    }
    let Strided { rows: from, stride } = mapped.rows;
    let scale = mapped.scale;
    match call.map {
        ScanMap::Elu1 | ScanMap::Relu | ScanMap::Features | ScanMap::Decay(_) => {
            let size = feature_size(&widths, count);
            let len = count * widths.wide_features;
            assert!(
                mapped.features.len() >= len
                    && d_features.len() >= len
                    && from.len() >= (count - 1) * stride + widths.d_head,
                "gradients out of bounds"
            );
            let Some(kind) = call.elementwise() else {
                return;
            };
            // SAFETY: the processor supports the set; the sizes are checked above.
            unsafe {
                activation::map_rows_backward(
                    call.set,
                    kind,
                    size,
                    scale,
                    (from.as_ptr(), stride),
                    mapped.features.as_ptr(),
                    d_features.as_ptr(),
                    into.as_mut_ptr().cast(),
                );
            }
        }
        ScanMap::Exponential(directions) => {
            let mut sums = [0.0; CHUNK];
            let sums = &mut sums[..count];
            rows::weigh(mapped.features, widths.wide_features, d_features, sums);
            if mapped.is_scale_free {
                // Zero but for rounding.
                sums.fill(0.0);
            }
            multiply(
                call.set,
                [count, widths.features, widths.wide_head],
                Factor::rows(d_features, widths.wide_features),
                (&directions.rows, widths.wide_head),
                (directions_scratch, widths.wide_head),
                Accumulate::Overwrite,
            );
            let directions = Strided {
                rows: directions_scratch,
                stride: widths.wide_head,
            };
            let width = widths.d_head;
            rows::random_feature_grads(scale, directions, mapped.rows, sums, into, width);
        }
    }
}
