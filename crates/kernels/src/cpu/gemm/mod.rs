//! Matmul of matrices of any size, with bias and activation.
//!
//! The crate `gemm` multiplies in blocks that fit the caches; on a CPU with AMX, `split` multiplies larger
//! matrices in three parts. For a left factor of few rows, as in generation, memory bandwidth is the limit,
//! and `few_rows` reads the right factor once in the order of its memory.

mod few_rows;
mod finish;
#[cfg(all(target_arch = "x86_64", feature = "host"))]
mod split;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

pub use self::finish::{Activation, Finish};
pub(crate) use self::finish::{column_sums, finish_backward};

/// A matrix of contiguous rows or columns.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    elements: &'a [f32],
    /// Rows and columns.
    size: [usize; 2],
    /// Distance of rows, or of columns if `is_transposed`.
    stride: usize,
    is_transposed: bool,
}

impl<'a> Matrix<'a> {
    /// A matrix `[rows, columns]` in row-major order, or in column-major order if `is_transposed`.
    pub fn new(elements: &'a [f32], [rows, columns]: [usize; 2], is_transposed: bool) -> Self {
        Self {
            elements,
            size: [rows, columns],
            stride: if is_transposed { rows } else { columns },
            is_transposed,
        }
    }

    /// The strides of columns and rows.
    #[cfg(feature = "host")]
    fn strides(self) -> [isize; 2] {
        match self.is_transposed {
            false => [1, self.stride as isize],
            true => [self.stride as isize, 1],
        }
    }
}

/// Multiply-adds that are worth a second thread, about 10 us.
#[cfg(feature = "host")]
const MIN_PARALLEL: usize = 1 << 20;

/// `a · b` with `a: [rows, inner]` and `b: [inner, columns]`, then `finish` of every element:
/// `[rows, columns]`.
///
/// # Panics
///
/// If a matrix has another size, or fewer elements.
pub fn gemm(
    [rows, inner, columns]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    finish: Finish<'_>,
) -> Vec<f32> {
    assert!(
        a.size == [rows, inner]
            && b.size == [inner, columns]
            && a.elements.len() >= rows * inner
            && b.elements.len() >= inner * columns
            && finish.fits(rows, columns),
        "matmul of [{rows}, {inner}] and [{inner}, {columns}] out of bounds"
    );
    let size = [rows, inner, columns];
    let len = rows * columns;
    if len == 0 || inner == 0 {
        let mut zeros = vec![0.0; len];
        finish.apply(&mut zeros, columns);
        return zeros;
    }
    // Not zeroed first: that would write large outputs twice.
    let mut output = Vec::with_capacity(len);
    let elements = &mut output.spare_capacity_mut()[..len];
    if rows <= few_rows::MAX_ROWS {
        few_rows::add(size, a, b, zeroed(elements));
    } else if !multiply_in_parts(size, a, b, elements) {
        multiply(size, a, b, elements);
    }
    // SAFETY: each of them writes every element.
    unsafe { output.set_len(len) };
    finish.apply(&mut output, columns);
    output
}

fn zeroed(elements: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    elements.fill(MaybeUninit::new(0.0));
    // SAFETY: they were just initialised.
    unsafe { &mut *(elements as *mut [MaybeUninit<f32>] as *mut [f32]) }
}

/// The output of a product, of which every element is written.
type Output<'a> = &'a mut [MaybeUninit<f32>];

/// Computes a product in [parts](split), if that is possible and faster.
#[cfg(all(target_arch = "x86_64", feature = "host"))]
fn multiply_in_parts(size: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, c: Output<'_>) -> bool {
    // SAFETY: the condition is that of the function, and the caller checked the sizes.
    split::is_faster(size, b.is_transposed) && unsafe { split::multiply(size, a, b, c) }
}

/// Other processors have no AMX.
#[cfg(not(all(target_arch = "x86_64", feature = "host")))]
fn multiply_in_parts(_: [usize; 3], _: Matrix<'_>, _: Matrix<'_>, _: Output<'_>) -> bool {
    false
}

/// Whether this CPU computes a product of this size on AMX.
#[cfg(feature = "tch")]
pub(crate) fn uses_amx(size: [usize; 3], b_is_transposed: bool) -> bool {
    #[cfg(target_arch = "x86_64")]
    let uses_amx = split::is_faster(size, b_is_transposed);
    #[cfg(not(target_arch = "x86_64"))]
    let uses_amx = false;
    uses_amx
}

/// Without a host backend, these kernels are not called.
#[cfg(not(feature = "host"))]
fn multiply(size: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, c: Output<'_>) {
    few_rows::add(size, a, b, zeroed(c));
}

#[cfg(feature = "host")]
fn multiply([rows, inner, columns]: [usize; 3], a: Matrix<'_>, b: Matrix<'_>, c: Output<'_>) {
    use gemm::Parallelism;

    let parallelism = match rows * inner * columns {
        // 0: all threads.
        MIN_PARALLEL.. => Parallelism::Rayon(0),
        _ => Parallelism::None,
    };
    let [a_column, a_row] = a.strides();
    let [b_column, b_row] = b.strides();
    // SAFETY: the matrices have these elements, and the output is not read.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            c.as_mut_ptr().cast(),
            1,
            columns as isize,
            false,
            a.elements.as_ptr(),
            a_column,
            a_row,
            b.elements.as_ptr(),
            b_column,
            b_row,
            0.0,
            1.0,
            false,
            false,
            false,
            parallelism,
        );
    }
}
