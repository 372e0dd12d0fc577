//! A kernel that selects rows by index and adds copies.

use burn::backend::cubecl::dtype_to_storage_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::ir::ElemType;
use cubecl::prelude::*;

use crate::cube::launch::{buffer, empty_like, unit_grid, unit_index};

const UNITS: usize = 256;

/// Each unit computes one element: the sum of an element of `copies` rows, whose indices are `rows`
/// apart.
#[cube(launch_unchecked)]
fn sum_rows<E: Float, I: Int>(
    input: &[E],
    index: &[I],
    output: &mut [E],
    rows: u32,
    copies: u32,
    width: u32,
    #[define(E)] _dtype: ElemType,
    #[define(I)] _int: ElemType,
) {
    let (rows, width) = (rows as usize, width as usize);
    let element = unit_index();
    if element < rows * width {
        let (row, column) = (element / width, element % width);
        let mut sum = 0.0f32;
        for copy in 0..copies as usize {
            let selected = u32::cast_from(index[copy * rows + row]) as usize;
            sum += f32::cast_from(input[selected * width + column]);
        }
        output[element] = E::cast_from(sum);
    }
}

/// Launches the kernel for `[_, width]` and `[copies, rows]`; returns `[rows, 1, 1, width]`.
pub(crate) fn launch(input: CubeTensor, index: CubeTensor, rows: usize) -> CubeTensor {
    let [input, index] = [input, index].map(into_contiguous);
    let [_, width] = input.meta.shape().dims();
    let [indices] = index.meta.shape().dims();
    let output = empty_like(&input, [rows, 1, 1, width], input.dtype);
    // SAFETY: the kernel accesses the tensors within the sizes passed to it.
    unsafe {
        sum_rows::launch_unchecked(
            &input.client,
            unit_grid(rows * width, UNITS),
            CubeDim::new_1d(UNITS as u32),
            buffer(&input),
            buffer(&index),
            buffer(&output),
            rows as u32,
            (indices / rows) as u32,
            width as u32,
            dtype_to_storage_type(input.dtype),
            dtype_to_storage_type(index.dtype),
        );
    }
    output
}
