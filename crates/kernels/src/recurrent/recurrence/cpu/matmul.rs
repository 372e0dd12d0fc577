//! The products of the recurrence: few columns, read where they lie.

use crate::cpu::Simd;

/// Rows of a product that are held in registers at a time.
const ROWS: usize = 6;

/// The first factor: numbers that are read one at a time.
#[derive(Clone, Copy)]
pub(super) struct Scalars {
    pub(super) start: *const f32,
    /// From one row to the next.
    pub(super) row_stride: usize,
    /// From one number of a row to the next.
    pub(super) column_stride: usize,
}

/// What becomes of what was there.
#[derive(Clone, Copy)]
pub(super) enum Into {
    /// It is overwritten.
    Fresh,
    /// The product is added.
    Sum,
}

/// `c = a · b` or `c += a · b`: `a` of `rows` by `inner` numbers, `b` of `inner` rows of
/// `width` numbers and `c` of `rows` rows of as many, both without gaps.
///
/// # Safety
///
/// The instructions of `S` are enabled; `a` and `b` can be read and `c` written in these
/// sizes, and `c` overlaps neither.
#[inline(always)]
pub(super) unsafe fn matmul<S: Simd>(
    [rows, inner, width]: [usize; 3],
    a: Scalars,
    b: *const f32,
    c: *mut f32,
    into: Into,
) {
    let mut column = 0;
    // A stripe of `b` stays in the cache while all rows of `a` pass over it.
    while column < width {
        let registers = (width - column).div_ceil(S::LANES).min(S::WIDE);
        let columns = (width - column).min(registers * S::LANES);
        let last = columns - (registers - 1) * S::LANES;
        let mut row = 0;
        while row < rows {
            // SAFETY: what the caller promised, from this row and column on.
            unsafe {
                let a = Scalars {
                    start: a.start.add(row * a.row_stride),
                    ..a
                };
                let (b, c) = (b.add(column), c.add(row * width + column));
                let sizes = [inner, width, last];
                row += match rows - row {
                    ROWS.. => blocks::<S, ROWS>(registers, sizes, a, b, c, into),
                    4.. => blocks::<S, 4>(registers, sizes, a, b, c, into),
                    2.. => blocks::<S, 2>(registers, sizes, a, b, c, into),
                    _ => blocks::<S, 1>(registers, sizes, a, b, c, into),
                };
            }
        }
        column += columns;
    }
}

/// `R` rows of the product, so many registers wide; returns `R`.
///
/// # Safety
///
/// As for [`matmul`].
#[inline(always)]
unsafe fn blocks<S: Simd, const R: usize>(
    registers: usize,
    sizes: [usize; 3],
    a: Scalars,
    b: *const f32,
    c: *mut f32,
    into: Into,
) -> usize {
    // SAFETY: as the caller promised.
    unsafe {
        match (S::WIDE, registers) {
            (4, 4) => block::<S, R, 4>(sizes, a, b, c, into),
            (4, 3) => block::<S, R, 3>(sizes, a, b, c, into),
            (2.., 2) => block::<S, R, 2>(sizes, a, b, c, into),
            _ => block::<S, R, 1>(sizes, a, b, c, into),
        }
    }
    R
}

/// `R` rows by `W` registers of the product, held in registers throughout; of the last
/// register, `last` numbers.
///
/// # Safety
///
/// As for [`matmul`].
#[inline(always)]
unsafe fn block<S: Simd, const R: usize, const W: usize>(
    [inner, width, last]: [usize; 3],
    a: Scalars,
    mut b: *const f32,
    c: *mut f32,
    into: Into,
) {
    // SAFETY: all places are within what the caller promised.
    unsafe {
        let mut sums = [[S::splat(0.0); W]; R];
        let mut scalars = a.start;
        for _ in 0..inner {
            let mut vectors = [S::splat(0.0); W];
            for (at, vector) in vectors.iter_mut().enumerate() {
                *vector = match at + 1 == W {
                    true => S::load_some(b.add(at * S::LANES), last),
                    false => S::load(b.add(at * S::LANES)),
                };
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let scalar = S::splat(*scalars.add(row * a.row_stride));
                for (sum, vector) in sums.iter_mut().zip(vectors) {
                    *sum = S::fma(scalar, vector, *sum);
                }
            }
            b = b.wrapping_add(width);
            scalars = scalars.wrapping_add(a.column_stride);
        }
        for (row, sums) in sums.iter().enumerate() {
            for (at, &sum) in sums.iter().enumerate() {
                let place = c.add(row * width + at * S::LANES);
                let count = if at + 1 == W { last } else { S::LANES };
                // Added as a whole: a sum of sums is rounded less often than a long one.
                let sum = match into {
                    Into::Fresh => sum,
                    Into::Sum => S::add(S::load_some(place, count), sum),
                };
                S::store_some(place, sum, count);
            }
        }
    }
}
