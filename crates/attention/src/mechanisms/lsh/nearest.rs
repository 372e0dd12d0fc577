//! The nearest direction of each query, on the CPU.

use rayon::prelude::*;
use zoo_kernels::cpu::matmul::{Accumulate, Scalars, matmul};
use zoo_kernels::cpu::{InstructionSet, Simd, dispatch};

use super::hashing::Directions;
use zoo_kernels::cpu::scratch::Scratch;

/// Queries in a task.
const ROWS: usize = 64;

/// For each row of `query` and each of `groups` groups of directions, the index of the nearest of
/// these and their opposites, which follow them.
pub(super) fn nearest(
    query: &[f32],
    directions: &[f32],
    groups: usize,
    Directions { each, .. }: Directions,
) -> Vec<u32> {
    let d_head = directions.len() / (groups * each);
    let columns = (groups * each).next_multiple_of(MAX_LANES);
    let mut transposed = vec![0.0; d_head * columns];
    for (column, direction) in directions.chunks_exact(d_head).enumerate() {
        for (row, x) in direction.iter().enumerate() {
            transposed[row * columns + column] = *x;
        }
    }
    let mut nearest = vec![0; query.len() / d_head * groups];
    let set = InstructionSet::detect();
    let factors = Factors {
        transposed: &transposed,
        columns,
        each,
    };
    nearest
        .par_chunks_mut(ROWS * groups)
        .zip(query.par_chunks(ROWS * d_head))
        .for_each(|(nearest, query)| {
            // SAFETY: the CPU supports the instruction set.
            unsafe { nearest_rows(set, query, &factors, nearest) };
        });
    nearest
}

/// The most lanes of a vector.
const MAX_LANES: usize = 16;

/// The directions as columns, padded with zeros.
struct Factors<'a> {
    transposed: &'a [f32],
    columns: usize,
    /// Directions in a group.
    each: usize,
}

dispatch! {
    /// The nearest directions of some rows.
    unsafe fn nearest_rows(query: &[f32], factors: &Factors<'_>, nearest: &mut [u32]) by rows;
}

/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn rows<S: Simd>(query: &[f32], factors: &Factors<'_>, nearest: &mut [u32]) {
    let columns = factors.columns;
    let d_head = factors.transposed.len() / columns;
    let count = query.len() / d_head;
    let groups = nearest.len() / count;
    let mut scratch = Scratch::take();
    let [products] = scratch.split([count * columns]);
    // SAFETY: the caller enabled the instructions; the slices have these sizes.
    unsafe {
        let query = Scalars {
            start: query.as_ptr(),
            row_stride: d_head,
            column_stride: 1,
        };
        matmul::<S, false>(
            [count, d_head, columns],
            query,
            (factors.transposed.as_ptr(), columns),
            (products.as_mut_ptr(), columns),
            Accumulate::Overwrite,
        );
    }
    for (row, nearest) in products
        .chunks_exact(columns)
        .zip(nearest.chunks_exact_mut(groups))
    {
        for (products, nearest) in row.chunks_exact(factors.each).zip(nearest) {
            let (mut largest, mut index, mut is_opposite) = (-1.0, 0, false);
            for (i, product) in products.iter().enumerate() {
                if product.abs() > largest {
                    (largest, index, is_opposite) = (product.abs(), i, *product < 0.0);
                }
            }
            *nearest = (index + if is_opposite { factors.each } else { 0 }) as u32;
        }
    }
}
