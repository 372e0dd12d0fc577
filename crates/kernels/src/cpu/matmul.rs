//! Matmul of small matrices over any [`Simd`]: elements of the first factor are broadcast, and rows
//! of the second are loaded as vectors.

use super::Simd;

/// Rows of the register tile: 6 by 4 accumulators leave 8 of 32 registers with AVX-512, and 6 by 2
/// leave 4 of 16 with AVX2.
const ROWS: usize = 6;

/// A strided matrix that is read one element at a time: `(row, column)` is at
/// `start + row · row_stride + column · column_stride`.
#[derive(Clone, Copy)]
pub struct Scalars {
    /// The first element.
    pub start: *const f32,
    /// Row stride.
    pub row_stride: usize,
    /// Distance between columns.
    pub column_stride: usize,
}

/// How a matmul treats the previous content of its output.
#[derive(Clone, Copy, PartialEq)]
pub enum Accumulate {
    /// Overwrites it.
    Overwrite,
    /// Adds to it.
    Add,
    /// Multiplies it by a factor and adds to it.
    Scale(f32),
}

/// `c = a · b`, `c += a · b` or `c = factor · c + a · b` with `a: [rows, inner]`, `b: [inner, width]` and `c: [rows, width]`.
///
/// If `RAGGED`, `width` is arbitrary; otherwise it is a multiple of `S::LANES`.
///
/// # Safety
///
/// The instructions of `S` are enabled; `a` and `b` are readable and `c` is writable in these sizes
/// and strides, and `c` does not overlap `a` or `b`.
#[inline(always)]
pub unsafe fn matmul<S: Simd, const RAGGED: bool>(
    [rows, inner, width]: [usize; 3],
    a: Scalars,
    (b, b_stride): (*const f32, usize),
    (c, c_stride): (*mut f32, usize),
    accumulate: Accumulate,
) {
    let mut column = 0;
    // A stripe of `b` stays in the cache for all rows of `a`.
    while column < width {
        let left = width - column;
        let registers = match RAGGED {
            true => left.div_ceil(S::LANES).min(S::TILE_VECTORS),
            false if left >= S::TILE_VECTORS * S::LANES => S::TILE_VECTORS,
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
            // SAFETY: as promised by the caller, from this row and column on.
            unsafe {
                let a = Scalars {
                    start: a.start.add(row * a.row_stride),
                    ..a
                };
                let (b, c) = (b.add(column), c.add(row * c_stride + column));
                // 64 rows leave a remainder of 4, for which one tile of 4 rows has enough
                // independent sums.
                row += match rows - row {
                    // Two tiles of 4 rows instead of 6 rows and a remainder of 2.
                    8 => block.rows::<S, RAGGED, 4>(a, b, c),
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

/// A block of the output that is accumulated in registers.
#[derive(Clone, Copy)]
struct Block {
    /// Vectors per row.
    registers: usize,
    /// Inner dimension of the product.
    inner: usize,
    /// Elements of the last vector.
    last: usize,
    b_stride: usize,
    c_stride: usize,
    accumulate: Accumulate,
}

impl Block {
    /// Computes `R` rows and returns `R`. Safety: as for [`matmul`].
    #[inline(always)]
    unsafe fn rows<S: Simd, const RAGGED: bool, const R: usize>(
        self,
        a: Scalars,
        b: *const f32,
        c: *mut f32,
    ) -> usize {
        // SAFETY: as promised by the caller.
        unsafe {
            match (S::TILE_VECTORS, self.registers) {
                (4, 4) => self.product::<S, RAGGED, R, 4>(a, b, c),
                (4, 3) if RAGGED => self.product::<S, RAGGED, R, 3>(a, b, c),
                (4, 2) if RAGGED => self.product::<S, RAGGED, R, 2>(a, b, c),
                (2, 2) => self.product::<S, RAGGED, R, 2>(a, b, c),
                _ => self.product::<S, RAGGED, R, 1>(a, b, c),
            }
        }
        R
    }

    /// Computes `R` rows by `W` vectors. Safety: as for [`matmul`].
    #[inline(always)]
    unsafe fn product<S: Simd, const RAGGED: bool, const R: usize, const W: usize>(
        self,
        a: Scalars,
        mut b: *const f32,
        c: *mut f32,
    ) {
        // SAFETY: all accesses are within the sizes promised by the caller.
        unsafe {
            let mut sums = [[S::splat(0.0); W]; R];
            let mut scalars = a.start;
            for _ in 0..self.inner {
                let mut vectors = [S::splat(0.0); W];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    *vector = if RAGGED && i + 1 == W {
                        S::load_partial(b.add(i * S::LANES), self.last)
                    } else {
                        S::load(b.add(i * S::LANES))
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
                for (i, &sum) in sums.iter().enumerate() {
                    let to = c.add(row * self.c_stride + i * S::LANES);
                    let is_partial = RAGGED && i + 1 == W;
                    // Added at the end: starting from `c` would round every term at its magnitude.
                    let sum = match self.accumulate {
                        Accumulate::Overwrite => sum,
                        Accumulate::Add if is_partial => {
                            S::add(S::load_partial(to, self.last), sum)
                        }
                        Accumulate::Add => S::add(S::load(to), sum),
                        Accumulate::Scale(factor) if is_partial => {
                            S::fma(S::splat(factor), S::load_partial(to, self.last), sum)
                        }
                        Accumulate::Scale(factor) => S::fma(S::splat(factor), S::load(to), sum),
                    };
                    if is_partial {
                        S::store_partial(to, sum, self.last);
                    } else {
                        S::store(to, sum);
                    }
                }
            }
        }
    }
}
