//! Product of a few rows with a matrix that is read once.

use std::ops::Range;

use super::super::parallel::{for_each, threads};
use super::super::scratch::Scratch;
use super::super::{InstructionSet, Simd, dispatch};
use super::Matrix;

/// The most rows that are computed here.
pub(super) const MAX_ROWS: usize = 8;

/// Multiply-adds that are worth a second thread: a matrix of 256 KiB.
const MIN_PARALLEL: usize = 1 << 16;

/// Columns of a task are a multiple of this number, a cache line.
const LINE: usize = 16;

/// Elements of the output that stay in the L1 cache: 16 KiB.
const CACHED: usize = 1 << 12;

/// Dot products that are computed at once.
const DOTS: usize = 16;

/// The most lanes of a vector.
const MAX_LANES: usize = 16;

/// The rows, the matrix and the output.
struct Product<'a> {
    size: [usize; 3],
    /// `[rows, inner]` in row-major order.
    a: &'a [f32],
    b: Matrix<'a>,
    c: *mut f32,
}

// SAFETY: every task writes to columns of its own.
unsafe impl Sync for Product<'_> {}

/// Adds the product to `c`.
pub(super) fn add(size: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32]) {
    let set = InstructionSet::detect();
    let [rows, inner, columns] = size;
    let mut scratch = Scratch::take();
    let [packed] = scratch.split([rows * inner]);
    let a = match a.is_transposed {
        false => a.elements,
        true => {
            for (row, packed) in packed.chunks_exact_mut(inner).enumerate() {
                let column = a.elements[row..].iter().step_by(a.stride);
                packed.iter_mut().zip(column).for_each(|(to, x)| *to = *x);
            }
            packed
        }
    };
    let product = &Product {
        size,
        a,
        b,
        c: c.as_mut_ptr(),
    };
    let tasks = match rows * inner * columns {
        MIN_PARALLEL.. => threads(),
        _ => 1,
    };
    let width = columns.div_ceil(tasks).next_multiple_of(LINE);
    let parts = (0..columns).step_by(width);
    let parts = parts.map(|first| first..columns.min(first + width));
    for_each(parts.collect(), |columns: Range<usize>| {
        // SAFETY: the processor supports the set, and no other task has these columns.
        unsafe { multiply_columns(set, product, columns) };
    });
}

dispatch! {
    unsafe fn multiply_columns(product: &Product<'_>, columns: Range<usize>) by add_columns;
}

/// Adds the products with some columns.
///
/// # Safety
///
/// The instructions of `S` are enabled, the columns are within the matrices, and no other thread
/// writes to them.
#[inline(always)]
unsafe fn add_columns<S: Simd>(product: &Product<'_>, columns: Range<usize>) {
    let [rows, inner, _] = product.size;
    // SAFETY: as promised by the caller.
    unsafe {
        if product.b.is_transposed {
            add_dots::<S>(product, columns);
            return;
        }
        let width = (CACHED / rows).next_multiple_of(LINE);
        for first in columns.clone().step_by(width) {
            let columns = first..columns.end.min(first + width);
            let mut k = 0;
            while k < inner {
                k += match (rows, inner - k) {
                    (1 | 2, 8..) => add_rows::<S, 8>(product, k, columns.clone()),
                    (_, 4..) => add_rows::<S, 4>(product, k, columns.clone()),
                    _ => add_rows::<S, 1>(product, k, columns.clone()),
                };
            }
        }
    }
}

/// Adds the products with `K` rows of the right factor, and returns `K`. They are read from memory
/// for the first rows, then from the cache.
///
/// # Safety
///
/// As for [`add_columns`].
#[inline(always)]
unsafe fn add_rows<S: Simd, const K: usize>(
    product: &Product<'_>,
    k: usize,
    columns: Range<usize>,
) -> usize {
    let [rows, ..] = product.size;
    let mut row = 0;
    while row < rows {
        let (at, columns) = ([row, k], columns.clone());
        // SAFETY: as promised by the caller.
        row += unsafe {
            match rows - row {
                1 => add_block::<S, 1, K>(product, at, columns),
                2 | 3 => add_block::<S, 2, K>(product, at, columns),
                _ => add_block::<S, 4, K>(product, at, columns),
            }
        };
    }
    K
}

/// Adds the product of `R` rows with `K` rows of the right factor, from `[row, k]` on, and returns
/// `R`.
///
/// # Safety
///
/// As for [`add_columns`].
#[inline(always)]
unsafe fn add_block<S: Simd, const R: usize, const K: usize>(
    product: &Product<'_>,
    [row, k]: [usize; 2],
    columns: Range<usize>,
) -> usize {
    let [_, inner, stride] = product.size;
    // SAFETY: as promised by the caller.
    unsafe {
        let mut scalars = [[S::splat(0.0); K]; R];
        for (i, scalars) in scalars.iter_mut().enumerate() {
            for (j, scalar) in scalars.iter_mut().enumerate() {
                *scalar = S::splat(product.a[(row + i) * inner + k + j]);
            }
        }
        let b = product.b.elements[k * stride..].as_ptr();
        let c = product.c.add(row * stride);
        for first in columns.clone().step_by(S::LANES) {
            let count = S::LANES.min(columns.end - first);
            let mut vectors = [S::splat(0.0); K];
            for (j, vector) in vectors.iter_mut().enumerate() {
                *vector = S::load_partial(b.add(j * stride + first), count);
            }
            for (i, scalars) in scalars.iter().enumerate() {
                let to = c.add(i * stride + first);
                let mut sum = S::load_partial(to, count);
                for (scalar, vector) in scalars.iter().zip(vectors) {
                    sum = S::fma(*scalar, vector, sum);
                }
                S::store_partial(to, sum, count);
            }
        }
    }
    R
}

/// Adds the dot products with columns of a transposed right factor, which are contiguous.
///
/// # Safety
///
/// As for [`add_columns`].
#[inline(always)]
unsafe fn add_dots<S: Simd>(product: &Product<'_>, columns: Range<usize>) {
    let [rows, ..] = product.size;
    let mut row = 0;
    while row < rows {
        let columns = columns.clone();
        // SAFETY: as promised by the caller.
        row += unsafe {
            match rows - row {
                1 => dots::<S, 1, 16>(product, row, columns),
                2 | 3 => dots::<S, 2, 8>(product, row, columns),
                _ => dots::<S, 4, 4>(product, row, columns),
            }
        };
    }
}

/// The dot products of `R` rows with columns, `C` at a time; returns `R`. `R · C` is `DOTS`.
///
/// # Safety
///
/// As for [`add_columns`].
#[inline(always)]
unsafe fn dots<S: Simd, const R: usize, const C: usize>(
    product: &Product<'_>,
    row: usize,
    columns: Range<usize>,
) -> usize {
    let [_, inner, stride] = product.size;
    let a = product.a[row * inner..].as_ptr();
    let mut lanes = [0.0; DOTS * MAX_LANES];
    for first in columns.clone().step_by(C) {
        let count = C.min(columns.end - first);
        // The last column is computed several times if there are fewer than `C`.
        let column = |j: usize| product.b.elements[(first + j.min(count - 1)) * inner..].as_ptr();
        // SAFETY: as promised by the caller.
        unsafe {
            let mut sums = [[S::splat(0.0); C]; R];
            for k in (0..inner).step_by(S::LANES) {
                let width = S::LANES.min(inner - k);
                let mut vectors = [S::splat(0.0); R];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    *vector = S::load_partial(a.add(i * inner + k), width);
                }
                for j in 0..C {
                    let b = S::load_partial(column(j).add(k), width);
                    for (sums, vector) in sums.iter_mut().zip(vectors) {
                        sums[j] = S::fma(vector, b, sums[j]);
                    }
                }
            }
            for (i, sum) in sums.iter().flatten().enumerate() {
                S::store(lanes.as_mut_ptr().add(i * S::LANES), *sum);
            }
            let dots = sum_lanes::<S>(&lanes);
            for (i, dots) in dots.chunks_exact(C).enumerate() {
                let to = product.c.add((row + i) * stride + first);
                to.copy_from_nonoverlapping(dots.as_ptr(), count);
            }
        }
    }
    R
}

/// The sum of each of `DOTS` vectors.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn sum_lanes<S: Simd>(lanes: &[f32; DOTS * MAX_LANES]) -> [f32; DOTS] {
    let mut sums = [0.0; DOTS];
    let mut transposed = [0.0; MAX_LANES * MAX_LANES];
    for first in (0..DOTS).step_by(S::LANES) {
        // SAFETY: `DOTS` is a multiple of the lanes of every instruction set.
        unsafe {
            let block = lanes[first * S::LANES..].as_ptr();
            S::transpose(block, S::LANES, transposed.as_mut_ptr(), S::LANES);
            let mut sum = S::splat(0.0);
            for lane in 0..S::LANES {
                sum = S::add(sum, S::load(transposed[lane * S::LANES..].as_ptr()));
            }
            S::store(sums[first..].as_mut_ptr(), sum);
        }
    }
    sums
}
