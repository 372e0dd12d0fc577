//! The two matmuls of attention with cooperative matrices, in half precision.
//!
//! The element-to-lane mapping of cooperative matrices is implementation-defined, so products go
//! through shared memory, from which each unit loads the elements that it would [compute
//! itself](super::tile). Softmax, masks and sums are the same for both.

use cubecl::cmma::{self, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use super::finite::load_finite;
use super::layout::{FRAGMENT, Layout, Matmul, padded_stride};
use super::memory::{Matrix, SharedMemory, StoredVec4, Vec4, load_tile, tile_row_offset};

/// `left · rightᵀ` for a tile.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    left: &Matrix<'_, E, N>,
    right: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
) {
    let layout = comptime!(memory.layout);
    let chunk = comptime!(layout.chunk_vec4s);
    let sums = zero_fragments(layout);
    let chunks = left.rows.width.div_ceil(comptime!(layout.chunk_vec4s * 4));
    for chunk_index in 0..chunks {
        // Other units may still read the previous chunk.
        sync_cube();
        let first = chunk_index * chunk;
        load_operand::<E, N>(left, MatrixIdent::A, first, chunk, false, memory);
        load_operand::<E, N>(right, MatrixIdent::B, first, chunk, false, memory);
        sync_cube();
        add_products::<E>(&sums, memory, MatrixLayout::ColMajor, chunk);
    }
    store_products::<E>(&sums, memory);
    load_tile::<E>(products, memory);
}

/// `sums += weights · matrix` for a tile, with the weights of
/// [`store_half_tile`](super::memory::store_half_tile).
#[cube]
pub(super) fn add_weighted<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Vec4>,
    may_mask: bool,
    #[comptime] blocks: usize,
) {
    let layout = comptime!(memory.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit_vec4s = comptime!(layout.unit_vec4s);
    let tile_vec4s = comptime!(layout.cube_side * layout.unit_vec4s);
    let unit = UNIT_POS as usize;
    #[unroll]
    for block in 0..blocks {
        // The weights are stored, and the previous product has been read.
        sync_cube();
        let first = block * tile_vec4s;
        load_operand::<E, N>(matrix, MatrixIdent::B, first, tile_vec4s, may_mask, memory);
        sync_cube();
        let products = zero_fragments(layout);
        add_products::<E>(&products, memory, MatrixLayout::RowMajor, tile_vec4s);
        store_products::<E>(&products, memory);
        #[unroll]
        for i in 0..comptime!(layout.unit_rows) {
            let offset =
                tile_row_offset(unit / cube_side + i * cube_side, layout) + unit % cube_side;
            #[unroll]
            for c in 0..unit_vec4s {
                sums[(i * blocks + block) * unit_vec4s + c] += memory.full[offset + c * cube_side];
            }
        }
    }
}

#[cube]
fn zero_fragments(#[comptime] layout: Layout) -> Sequence<cmma::Matrix<f32>> {
    let mut sums = Sequence::<cmma::Matrix<f32>>::new();
    #[unroll]
    for _ in 0..comptime!(layout.plane_fragments()) {
        sums.push(cmma::Matrix::<f32>::from_value(
            MatrixIdent::Accumulator,
            FRAGMENT,
            FRAGMENT,
            FRAGMENT,
            MatrixLayout::Undefined,
            0.0f32,
        ));
    }
    sums
}

/// Loads rows of `vec4s`, from number `first_vec4` on, of the left (A) or the right (B) operand to
/// shared memory.
#[cube]
fn load_operand<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    #[comptime] operand: MatrixIdent,
    first_vec4: usize,
    #[comptime] vec4s: usize,
    may_mask: bool,
    memory: &mut SharedMemory<E>,
) {
    let layout = comptime!(memory.layout);
    let [offset, rows] = comptime!(match operand {
        MatrixIdent::A => [0, layout.tile_m()],
        _ => [layout.rhs_offset(), layout.tile_n()],
    });
    let stride = comptime!(padded_stride(Matmul::Cmma, vec4s));
    let unit = UNIT_POS as usize;
    // Unrolled: the loads of different steps are independent.
    #[unroll]
    for step in 0..comptime!(rows * vec4s / layout.units()) {
        let index = unit + step * comptime!(layout.units());
        let row = index / vec4s;
        let vec4 = index % vec4s;
        let loaded = load_finite::<E, N>(matrix, row, first_vec4 + vec4, may_mask, memory);
        memory.half[offset + row * stride + vec4] = loaded;
    }
}

/// The row and column, in fragments, of a plane's first fragment in a tile. The plane's others
/// follow in the same row.
#[cube]
fn first_fragment(#[comptime] layout: Layout) -> (usize, usize) {
    let index = PLANE_POS as usize * comptime!(layout.plane_fragments());
    let per_row = comptime!(layout.tile_n() / FRAGMENT);
    (index / per_row, index % per_row)
}

/// Adds the product of the operands in shared memory, with rows of `vec4s`, to the fragments of a
/// plane.
#[cube]
fn add_products<E: Float>(
    sums: &Sequence<cmma::Matrix<f32>>,
    memory: &mut SharedMemory<E>,
    #[comptime] rhs_layout: MatrixLayout,
    #[comptime] vec4s: usize,
) {
    let layout = comptime!(memory.layout);
    let stride = comptime!(padded_stride(Matmul::Cmma, vec4s));
    let (row, column) = first_fragment(layout);
    let end = comptime!(layout.half_len());
    // Strides between fragments of the right operand, along N and along K.
    let [n_stride, k_stride] = comptime!(match rhs_layout {
        MatrixLayout::ColMajor => [FRAGMENT * stride, FRAGMENT / 4],
        _ => [FRAGMENT / 4, FRAGMENT * stride],
    });
    #[unroll]
    for step in 0..comptime!(vec4s * 4 / FRAGMENT) {
        let offset = row * comptime!(FRAGMENT * stride) + step * comptime!(FRAGMENT / 4);
        let lhs = cmma::Matrix::<StoredVec4<E>>::from_slice(
            MatrixIdent::A,
            FRAGMENT,
            FRAGMENT,
            FRAGMENT,
            MatrixLayout::RowMajor,
            &memory.half[offset..end],
            comptime!(4 * stride as u32),
        );
        #[unroll]
        for i in 0..comptime!(layout.plane_fragments()) {
            let offset = comptime!(layout.rhs_offset()) + (column + i) * n_stride + step * k_stride;
            let rhs = cmma::Matrix::<StoredVec4<E>>::from_slice(
                MatrixIdent::B,
                FRAGMENT,
                FRAGMENT,
                FRAGMENT,
                rhs_layout,
                &memory.half[offset..end],
                comptime!(4 * stride as u32),
            );
            let sum = sums.index(i);
            cmma::execute(&lhs, &rhs, sum, sum);
        }
    }
}

/// Stores the fragments of a plane as a tile in shared memory, followed by a barrier.
#[cube]
fn store_products<E: Float>(products: &Sequence<cmma::Matrix<f32>>, memory: &mut SharedMemory<E>) {
    let layout = comptime!(memory.layout);
    let (row, column) = first_fragment(layout);
    let end = comptime!(layout.reduce_offset());
    #[unroll]
    for i in 0..comptime!(layout.plane_fragments()) {
        let offset =
            tile_row_offset(row * FRAGMENT, layout) + (column + i) * comptime!(FRAGMENT / 4);
        cmma::store(
            &mut memory.full[offset..end],
            products.index(i),
            comptime!(4 * layout.tile_stride() as u32),
            MatrixLayout::RowMajor,
        );
    }
    sync_cube();
}
