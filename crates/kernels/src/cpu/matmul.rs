//! Products of small matrices, over any [`Simd`]: the first factor is read one number at a time,
//! and the second where it lies, across the lanes.

use super::Simd;

/// Rows of a product that are held in registers: 6 by 4 registers of AVX-512 leave 8 of 32 for
/// what they are multiplied with; 6 by 2 leave 4 of AVX2's 16.
const ROWS: usize = 6;

/// A matrix of scalars, read one by one: `(row, column)` lies at
/// `start + row · row_stride + column · column_stride`.
#[derive(Clone, Copy)]
pub struct Scalars {
    /// The first of them.
    pub start: *const f32,
    /// From one row to the next.
    pub row_stride: usize,
    /// From one number of a row to the next.
    pub column_stride: usize,
}

/// What a matmul does with the previous content of its result.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Accumulate {
    /// Replaces it.
    Overwrite,
    /// Adds to it.
    Add,
}

/// `c = a · b` or `c += a · b`: `a` of `rows` by `inner` scalars, `b` of `inner` rows of `width`
/// numbers and `c` of `rows` rows of as many.
///
/// If `RAGGED`, `width` may be any number; otherwise it is a multiple of `S::LANES`.
///
/// # Safety
///
/// The instructions of `S` are enabled; `a` and `b` can be read and `c` written in these sizes,
/// `b` and `c` with their rows as far apart as is given beside them, and `c` overlaps neither.
#[inline(always)]
pub unsafe fn matmul<S: Simd, const RAGGED: bool>(
    [rows, inner, width]: [usize; 3],
    a: Scalars,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
    accumulate: Accumulate,
) {
    let mut column = 0;
    // A stripe of `b` stays in the cache while all rows of `a` pass over it.
    while column < width {
        let left = width - column;
        let registers = match RAGGED {
            true => left.div_ceil(S::LANES).min(S::WIDE),
            false if left >= S::WIDE * S::LANES => S::WIDE,
            false => 1,
        };
        let columns = left.min(registers * S::LANES);
        let block = Block {
            registers,
            inner,
            last: columns - (registers - 1) * S::LANES,
            b_stride,
            c_stride,
            accumulate,
        };
        let mut row = 0;
        while row < rows {
            // SAFETY: what the caller promised, from this row and column on.
            unsafe {
                let a = Scalars {
                    start: a.start.add(row * a.row_stride),
                    ..a
                };
                let (b, c) = (b.add(column), c.add(row * c_stride + column));
                // What is left of 64 after sixes is 4, which alone keeps as many sums going.
                row += match rows - row {
                    ROWS.. => block.rows::<S, RAGGED, ROWS>(a, b, c),
                    4.. => block.rows::<S, RAGGED, 4>(a, b, c),
                    2.. if RAGGED => block.rows::<S, RAGGED, 2>(a, b, c),
                    _ => block.rows::<S, RAGGED, 1>(a, b, c),
                };
            }
        }
        column += columns;
    }
}

/// A part of the product that is held in registers throughout.
#[derive(Clone, Copy)]
struct Block {
    /// Registers of a row.
    registers: usize,
    /// Columns of the first factor and rows of the second.
    inner: usize,
    /// Numbers of the last register.
    last: usize,
    b_stride: usize,
    c_stride: usize,
    accumulate: Accumulate,
}

impl Block {
    /// `R` rows of the product; returns `R`.
    ///
    /// # Safety
    ///
    /// As for [`matmul`].
    #[inline(always)]
    unsafe fn rows<S: Simd, const RAGGED: bool, const R: usize>(
        self,
        a: Scalars,
        b: *const f32,
        c: *mut f32,
    ) -> usize {
        // SAFETY: as the caller promised.
        unsafe {
            match (S::WIDE, self.registers) {
                (4, 4) => self.product::<S, RAGGED, R, 4>(a, b, c),
                (4, 3) if RAGGED => self.product::<S, RAGGED, R, 3>(a, b, c),
                (4, 2) if RAGGED => self.product::<S, RAGGED, R, 2>(a, b, c),
                (2, 2) => self.product::<S, RAGGED, R, 2>(a, b, c),
                _ => self.product::<S, RAGGED, R, 1>(a, b, c),
            }
        }
        R
    }

    /// `R` rows by `W` registers.
    ///
    /// # Safety
    ///
    /// As for [`matmul`].
    #[inline(always)]
    unsafe fn product<S: Simd, const RAGGED: bool, const R: usize, const W: usize>(
        self,
        a: Scalars,
        mut b: *const f32,
        c: *mut f32,
    ) {
        // SAFETY: all places are within what the caller promised.
        unsafe {
            let mut sums = [[S::splat(0.0); W]; R];
            let mut scalars = a.start;
            for _ in 0..self.inner {
                let mut vectors = [S::splat(0.0); W];
                for (at, vector) in vectors.iter_mut().enumerate() {
                    *vector = match RAGGED && at + 1 == W {
                        true => S::load_some(b.add(at * S::LANES), self.last),
                        false => S::load(b.add(at * S::LANES)),
                    };
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let scalar = S::splat(*scalars.add(row * a.row_stride));
                    for (sum, vector) in sums.iter_mut().zip(vectors) {
                        *sum = S::fma(scalar, vector, *sum);
                    }
                }
                b = b.wrapping_add(self.b_stride);
                scalars = scalars.wrapping_add(a.column_stride);
            }
            for (row, sums) in sums.iter().enumerate() {
                for (at, &sum) in sums.iter().enumerate() {
                    let place = c.add(row * self.c_stride + at * S::LANES);
                    let is_partial = RAGGED && at + 1 == W;
                    // Added as a whole: a sum of sums is rounded less often than a long one.
                    let sum = match self.accumulate {
                        Accumulate::Overwrite => sum,
                        Accumulate::Add if is_partial => {
                            S::add(S::load_some(place, self.last), sum)
                        }
                        Accumulate::Add => S::add(S::load(place), sum),
                    };
                    match is_partial {
                        true => S::store_some(place, sum, self.last),
                        false => S::store(place, sum),
                    }
                }
            }
        }
    }
}
