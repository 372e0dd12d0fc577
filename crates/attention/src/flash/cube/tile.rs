//! The two matmuls of attention on a tile, and reductions over its rows.
//!
//! A cube has `cube_side · cube_side` units. Unit `(unit_row, unit_column)` has `unit_rows` rows
//! with a stride of `cube_side` (`unit_row`, `unit_row + cube_side`, ...), and `unit_vec4s` vec4s
//! of columns, interleaved with those of the other units. Shared memory is accessed by vec4, and a
//! unit multiplies all its rows by all its columns, so each load is used several times.

use cubecl::prelude::*;

use super::additive::tanh;
use super::cmma;
use super::finite::{add_non_finite, load_finite};
use super::layout::{Layout, Matmul};
use super::memory::{
    Matrix, Rows, SharedMemory, Vec4, load_vec4, store_half_tile, store_tile, store_vec4,
    tile_row_offset, unit_position,
};

/// `left · rightᵀ` for a tile. `products` gets each unit's elements, row by row.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
) {
    if comptime!(memory.layout.matmul == Matmul::Cmma) {
        cmma::matmul_nt::<E, N>(left, right, memory, products);
    } else {
        reduce_nt::<E, N>(left, right, left, memory, products, PairProduct::Dot);
    }
}

/// `Σ_x vector_x · tanh(left_ix + right_jx)` for a tile; the vector is a matrix with one row.
#[cube]
pub(super) fn additive_nt<E: Float, N: Size>(
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    vector: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
) {
    reduce_nt::<E, N>(left, right, vector, memory, products, PairProduct::Additive);
}

/// How [`reduce_nt`] combines the elements of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum PairProduct {
    Dot,
    Additive,
}

/// Sums over the columns of two matrices. The vector is only read for [`PairProduct::Additive`].
#[cube]
fn reduce_nt<E: Float, N: Size>(
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    vector: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
    #[comptime] product: PairProduct,
) {
    let layout = comptime!(memory.layout);
    let is_additive = comptime!(product == PairProduct::Additive);
    let cube_side = comptime!(layout.cube_side);
    let unit_rows = comptime!(layout.unit_rows);
    let unit_columns = comptime!(layout.unit_columns());
    let chunk = comptime!(layout.chunk_vec4s);
    let stride = comptime!(layout.chunk_stride());
    let right_offset = comptime!(layout.tile_m() * layout.chunk_stride());
    let unit = UNIT_POS as usize;
    let unit_row = unit / cube_side;
    let unit_column = unit % cube_side;
    #[unroll]
    for i in 0..comptime!(layout.unit_elements()) {
        products[i] = 0.0f32;
    }
    let chunks = left.rows.width.div_ceil(comptime!(chunk * 4));
    for chunk_index in 0..chunks {
        // Other units may still read the previous chunk.
        sync_cube();
        for step in 0..comptime!(unit_rows * chunk / cube_side) {
            let index = unit + step * comptime!(layout.units());
            let row = index / chunk;
            let vec4 = index % chunk;
            memory.full[row * stride + vec4] =
                Vec4::cast_from(load_vec4::<E, N>(left, row, chunk_index * chunk + vec4));
        }
        for step in 0..comptime!(unit_columns * chunk / cube_side) {
            let index = unit + step * comptime!(layout.units());
            let row = index / chunk;
            let vec4 = index % chunk;
            // Here the columns of a unit have a stride of `cube_side`: adjacent units then read
            // adjacent rows, which are in different banks.
            let j = row / cube_side;
            let from = (j / 4) * comptime!(4 * cube_side) + (row % cube_side) * 4 + j % 4;
            memory.full[right_offset + row * stride + vec4] =
                Vec4::cast_from(load_vec4::<E, N>(right, from, chunk_index * chunk + vec4));
        }
        sync_cube();
        for vec4 in 0..chunk {
            let mut right_vec4s = Array::<Vec4>::new(unit_columns);
            let mut factors = Vec4::new(0.0f32);
            if is_additive {
                let column = chunk_index * chunk + vec4;
                factors = Vec4::cast_from(load_vec4::<E, N>(vector, 0usize, column));
            }
            #[unroll]
            for j in 0..unit_columns {
                right_vec4s[j] =
                    memory.full[right_offset + (unit_column + j * cube_side) * stride + vec4];
            }
            #[unroll]
            for i in 0..unit_rows {
                let left_vec4 = memory.full[(unit_row + i * cube_side) * stride + vec4];
                #[unroll]
                for j in 0..unit_columns {
                    let right_vec4 = right_vec4s[j];
                    let mut sum = products[i * unit_columns + j];
                    #[unroll]
                    for k in 0..4usize {
                        let (a, b) = (left_vec4.extract(k), right_vec4.extract(k));
                        if is_additive {
                            sum = fma(factors.extract(k), tanh(a + b), sum);
                        } else {
                            sum = fma(a, b, sum);
                        }
                    }
                    products[i * unit_columns + j] = sum;
                }
            }
        }
    }
}

/// Stores each unit's weights of a tile for [`add_weighted`].
#[cube]
pub(super) fn store_weights<E: Float>(weights: &mut Array<f32>, memory: &mut SharedMemory<E>) {
    if comptime!(memory.layout.matmul == Matmul::Cmma) {
        store_half_tile::<E>(weights, memory);
    } else {
        store_tile::<E>(weights, memory);
    }
}

/// `sums += weights · matrix` for a tile, with the weights of [`store_weights`].
///
/// If keys may be masked, rows of the matrix whose weight is zero contribute nothing even if they
/// are not finite.
#[cube]
pub(super) fn add_weighted<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Vec4>,
    may_mask: bool,
    #[comptime] blocks: usize,
) {
    let layout = comptime!(memory.layout);
    // There was a barrier since the flag was last read.
    if may_mask && UNIT_POS == 0u32 {
        memory.full[comptime!(layout.flag_offset())] = Vec4::new(0.0f32);
    }
    if comptime!(layout.matmul == Matmul::Cmma) {
        cmma::add_weighted::<E, N>(matrix, memory, sums, may_mask, blocks);
    } else {
        let cube_side = comptime!(layout.cube_side);
        let unit_rows = comptime!(layout.unit_rows);
        let unit_vec4s = comptime!(layout.unit_vec4s);
        let staged_rows = comptime!(layout.staged_rows());
        let tile_vec4s = comptime!(layout.cube_side * layout.unit_vec4s);
        let unit = UNIT_POS as usize;
        let unit_row = unit / cube_side;
        let unit_column = unit % cube_side;
        #[unroll]
        for block in 0..blocks {
            for part in 0..comptime!(layout.tile_n() / layout.staged_rows()) {
                // The weights are stored, and the previous part has been read.
                sync_cube();
                for step in
                    0..comptime!(layout.staged_rows() * layout.unit_vec4s / layout.cube_side)
                {
                    let index = unit + step * comptime!(layout.units());
                    let loaded = load_finite::<E, N>(
                        matrix,
                        part * staged_rows + index / tile_vec4s,
                        block * tile_vec4s + index % tile_vec4s,
                        may_mask,
                        memory,
                    );
                    memory.full[index] = Vec4::cast_from(loaded);
                }
                sync_cube();
                for vec4 in 0..comptime!(layout.staged_rows() / 4) {
                    let mut matrix_vec4s = Array::<Vec4>::new(comptime!(layout.unit_columns()));
                    #[unroll]
                    for j in 0..4usize {
                        #[unroll]
                        for c in 0..unit_vec4s {
                            matrix_vec4s[j * unit_vec4s + c] = memory.full
                                [(vec4 * 4 + j) * tile_vec4s + c * cube_side + unit_column];
                        }
                    }
                    #[unroll]
                    for i in 0..unit_rows {
                        let offset = tile_row_offset(unit_row + i * cube_side, layout);
                        let weights =
                            memory.full[offset + part * comptime!(layout.staged_rows() / 4) + vec4];
                        #[unroll]
                        for c in 0..unit_vec4s {
                            let mut sum = sums[(i * blocks + block) * unit_vec4s + c];
                            #[unroll]
                            for j in 0..4usize {
                                sum = fma(
                                    Vec4::new(weights.extract(j)),
                                    matrix_vec4s[j * unit_vec4s + c],
                                    sum,
                                );
                            }
                            sums[(i * blocks + block) * unit_vec4s + c] = sum;
                        }
                    }
                }
            }
        }
    }
    if may_mask {
        sync_cube();
        if memory.full[comptime!(layout.flag_offset())].extract(0usize) > 0.0f32 {
            add_non_finite::<E, N>(matrix, memory, sums, blocks);
        }
    }
}

/// Writes the sums of [`add_weighted`] to a result from row `first` on.
#[cube]
pub(super) fn store_sums<E: Float, N: Size>(
    result: &mut [Vector<E, N>],
    result_rows: &Rows,
    first: usize,
    sums: &Array<Vec4>,
    #[comptime] blocks: usize,
    #[comptime] layout: Layout,
) {
    let cube_side = comptime!(layout.cube_side);
    let unit_vec4s = comptime!(layout.unit_vec4s);
    let (unit_row, unit_column) = unit_position(layout);
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        #[unroll]
        for block in 0..blocks {
            #[unroll]
            for c in 0..unit_vec4s {
                store_vec4::<E, N>(
                    result,
                    result_rows,
                    first + unit_row + i * cube_side,
                    (block * unit_vec4s + c) * cube_side + unit_column,
                    sums[(i * blocks + block) * unit_vec4s + c],
                );
            }
        }
    }
}

/// Reduces one value per row over the units of each row: to the maximum, or to the sum.
#[cube]
pub(super) fn reduce_rows<E: Float>(
    values: &mut Array<f32>,
    memory: &mut SharedMemory<E>,
    #[comptime] is_sum: bool,
) {
    let layout = comptime!(memory.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    let unit_row = unit / cube_side;
    // There is a barrier between two calls, so the previous values have been read.
    #[unroll]
    for part in 0..comptime!(layout.unit_rows / 4) {
        let mut vec4 = Vec4::new(0.0f32);
        #[unroll]
        for i in 0..4usize {
            vec4.insert(i, values[part * 4 + i]);
        }
        let offset = comptime!(layout.reduce_offset()) + part * comptime!(layout.units());
        memory.full[offset + unit] = vec4;
    }
    sync_cube();
    #[unroll]
    for part in 0..comptime!(layout.unit_rows / 4) {
        let offset = comptime!(layout.reduce_offset())
            + part * comptime!(layout.units())
            + unit_row * cube_side;
        let mut all = memory.full[offset];
        for other in 1..cube_side {
            let value = memory.full[offset + other];
            if is_sum {
                all += value;
            } else {
                all = max(all, value);
            }
        }
        #[unroll]
        for i in 0..4usize {
            values[part * 4 + i] = all.extract(i);
        }
    }
}
