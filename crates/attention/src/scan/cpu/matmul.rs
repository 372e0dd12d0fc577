//! Matmuls of slices, also of lower triangles, and transposition.

use zoo_kernels::cpu::matmul::{Accumulate, Scalars, matmul};
use zoo_kernels::cpu::{InstructionSet, Simd, dispatch};

use zoo_kernels::cpu::transpose;

/// Rows of a triangle that are computed at once: their columns are rounded up to this number, which
/// is a multiple of the lanes of every instruction set.
pub(in crate::scan) const STRIP: usize = 16;

/// A matrix whose elements are read one by one.
#[derive(Clone, Copy)]
pub(in crate::scan) struct Factor<'a> {
    values: &'a [f32],
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Factor<'a> {
    /// Rows with this stride.
    pub(in crate::scan) fn rows(values: &'a [f32], stride: usize) -> Self {
        Self {
            values,
            row_stride: stride,
            column_stride: 1,
        }
    }

    /// The transpose of rows with this stride.
    pub(in crate::scan) fn columns(values: &'a [f32], stride: usize) -> Self {
        Self {
            values,
            row_stride: 1,
            column_stride: stride,
        }
    }
}

/// Rows with a stride.
pub(in crate::scan) type Rows<'a> = (&'a [f32], usize);
pub(in crate::scan) type RowsMut<'a> = (&'a mut [f32], usize);

/// `c = a · b` or `c += a · b` with `a: [rows, inner]`, `b: [inner, width]` and `c: [rows, width]`.
/// The width is a multiple of 16.
pub(in crate::scan) fn multiply(
    set: InstructionSet,
    size: [usize; 3],
    a: Factor<'_>,
    b: Rows<'_>,
    c: RowsMut<'_>,
    accumulate: Accumulate,
) {
    let [rows, inner, width] = size;
    if rows == 0 || width == 0 {
        return;
    }
    let has = |len: usize, rows: usize, stride: usize, width: usize| {
        rows == 0 || (rows - 1) * stride + width <= len
    };
    let last = inner.saturating_sub(1) * a.column_stride;
    assert!(
        width.is_multiple_of(STRIP)
            && has(a.values.len(), rows, a.row_stride, last + 1)
            && has(b.0.len(), inner, b.1, width)
            && has(c.0.len(), rows, c.1, width),
        "matmul out of bounds: {size:?}"
    );
    let a = Scalars {
        start: a.values.as_ptr(),
        row_stride: a.row_stride,
        column_stride: a.column_stride,
    };
    // SAFETY: the processor supports the set; the sizes are checked above, and the output is
    // borrowed mutably.
    unsafe {
        multiply_kernel(
            set,
            size,
            a,
            (b.0.as_ptr(), b.1),
            (c.0.as_mut_ptr(), c.1),
            accumulate,
        );
    }
}

dispatch! {
    unsafe fn multiply_kernel(
        size: [usize; 3],
        a: Scalars,
        b: (*const f32, usize),
        c: (*mut f32, usize),
        accumulate: Accumulate,
    ) by multiply_by;
}

/// # Safety
///
/// As for [`matmul`].
#[inline(always)]
unsafe fn multiply_by<S: Simd>(
    size: [usize; 3],
    a: Scalars,
    b: (*const f32, usize),
    c: (*mut f32, usize),
    accumulate: Accumulate,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        if size[2].is_multiple_of(S::TILE_VECTORS * S::LANES) {
            matmul::<S, false>(size, a, b, c, accumulate);
        } else {
            matmul::<S, true>(size, a, b, c, accumulate);
        }
    }
}

/// `scores[i][j] = x_i · y_j` for `j <= i < count`, with the columns of `y`. Elements above the
/// diagonal are unspecified.
pub(in crate::scan) fn lower_products<const CHUNK: usize>(
    set: InstructionSet,
    [count, inner]: [usize; 2],
    x: Rows<'_>,
    y_columns: &[f32],
    scores: &mut [f32],
) {
    for first in (0..count).step_by(STRIP) {
        multiply(
            set,
            [STRIP.min(count - first), inner, first + STRIP],
            Factor::rows(&x.0[first * x.1..], x.1),
            (y_columns, CHUNK),
            (&mut scores[first * CHUNK..], CHUNK),
            Accumulate::Overwrite,
        );
    }
}

/// Elements of row `i` of the scores that [`lower_times`] reads.
pub(in crate::scan) fn strip_width(i: usize) -> usize {
    i / STRIP * STRIP + STRIP
}

/// `to_i += Σ_(j <= i) scores[i][j] b_j`; the scores above the diagonal are zero.
pub(in crate::scan) fn lower_times<const CHUNK: usize>(
    set: InstructionSet,
    [count, width]: [usize; 2],
    scores: &[f32],
    b: Rows<'_>,
    to: RowsMut<'_>,
) {
    for first in (0..count).step_by(STRIP) {
        multiply(
            set,
            [STRIP.min(count - first), count.min(first + STRIP), width],
            Factor::rows(&scores[first * CHUNK..], CHUNK),
            b,
            (&mut to.0[first * to.1..], to.1),
            Accumulate::Add,
        );
    }
}

/// `to_j += Σ_(i >= j) scores[i][j] b_i`; the scores above the diagonal are zero.
pub(in crate::scan) fn lower_transposed_times<const CHUNK: usize>(
    set: InstructionSet,
    [count, width]: [usize; 2],
    scores: &[f32],
    b: Rows<'_>,
    to: RowsMut<'_>,
) {
    for first in (0..count).step_by(STRIP) {
        multiply(
            set,
            [STRIP.min(count - first), count - first, width],
            Factor::columns(&scores[first * CHUNK + first..], CHUNK),
            (&b.0[first * b.1..], b.1),
            (&mut to.0[first * to.1..], to.1),
            Accumulate::Add,
        );
    }
}

/// Transposes a matrix: `into` gets `columns` rows of `rows` elements.
pub(in crate::scan) fn transpose(
    set: InstructionSet,
    [rows, columns]: [usize; 2],
    from: Rows<'_>,
    into: RowsMut<'_>,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(
        (rows - 1) * from.1 + columns <= from.0.len()
            && (columns - 1) * into.1 + rows <= into.0.len(),
        "transpose out of bounds: {rows} by {columns}"
    );
    let (from, into) = ((from.0.as_ptr(), from.1), (into.0.as_mut_ptr(), into.1));
    // SAFETY: the processor supports the set; the sizes are checked above.
    unsafe { transpose_kernel(set, [rows, columns], from, into) };
}

dispatch! {
    unsafe fn transpose_kernel(
        size: [usize; 2],
        from: (*const f32, usize),
        into: (*mut f32, usize),
    ) by transpose_by;
}

/// # Safety
///
/// As for [`transpose::transpose`].
#[inline(always)]
unsafe fn transpose_by<S: Simd>(
    size: [usize; 2],
    from: (*const f32, usize),
    into: (*mut f32, usize),
) {
    // SAFETY: as promised by the caller.
    unsafe { transpose::transpose::<S>(size, from, into) };
}
