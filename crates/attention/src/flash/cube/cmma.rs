//! The two matmuls of attention with cooperative matrices, in half precision.
//!
//! The element-to-lane mapping of cooperative matrices is implementation-defined, so products go
//! through shared memory, from which each unit loads the elements that it would [compute
//! itself](super::tile). Softmax, masks and sums are the same for both.

use cubecl::cmma::{self, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use super::finite::load_finite;
use super::layout::{FRAGMENT, Layout};
use super::memory::{Rows, SharedMemory, StoredVec4, Vec4, load_tile, tile_row_offset};

/// `left · rightᵀ` for a tile.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    left: &[Vector<E, N>],
    left_rows: &Rows,
    first_left: usize,
    right: &[Vector<E, N>],
    right_rows: &Rows,
    first_right: usize,
    memory: &mut SharedMemory<E>,
    products: &mut Array<f32>,
    #[comptime] layout: Layout,
) {
    let chunk = comptime!(layout.chunk_vec4s);
    let sums = zero_fragments(layout);
    let chunks = left_rows.width.div_ceil(comptime!(layout.chunk_vec4s * 4));
    for chunk_index in 0..chunks {
        // Other units may still read the previous chunk.
        sync_cube();
        load_to_shared::<E, N>(
            left,
            left_rows,
            first_left,
            chunk_index * chunk,
            memory,
            false,
            0usize,
            comptime!(layout.tile_m()),
            comptime!(layout.chunk_vec4s),
            comptime!(layout.chunk_stride()),
            layout,
        );
        load_to_shared::<E, N>(
            right,
            right_rows,
            first_right,
            chunk_index * chunk,
            memory,
            false,
            comptime!(layout.rhs_offset()),
            comptime!(layout.tile_n()),
            comptime!(layout.chunk_vec4s),
            comptime!(layout.chunk_stride()),
            layout,
        );
        sync_cube();
        add_products::<E>(
            &sums,
            memory,
            comptime!(layout.chunk_stride()),
            MatrixLayout::ColMajor,
            comptime!(layout.chunk_vec4s * 4 / FRAGMENT),
            layout,
        );
    }
    store_products(&sums, &mut memory.full, layout);
    load_tile(products, &mut memory.full, layout);
}

/// Stores each unit's weights of a tile for [`add_weighted`].
#[cube]
pub(super) fn store_weights<E: Float>(
    weights: &mut Array<f32>,
    memory: &mut SharedMemory<E>,
    #[comptime] layout: Layout,
) {
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        let offset =
            (unit / cube_side + i * cube_side) * comptime!(layout.half_stride()) + unit % cube_side;
        #[unroll]
        for c in 0..comptime!(layout.unit_vec4s) {
            let mut vec4 = StoredVec4::<E>::new(E::from_int(0));
            #[unroll]
            for j in 0..4usize {
                let weight = weights[i * comptime!(layout.unit_columns()) + c * 4 + j];
                vec4.insert(j, E::cast_from(weight));
            }
            memory.half[offset + c * cube_side] = vec4;
        }
    }
}

/// `sums += weights · matrix` for a tile, with the weights of [`store_weights`].
#[cube]
pub(super) fn add_weighted<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    matrix_rows: &Rows,
    first: usize,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Vec4>,
    may_mask: bool,
    #[comptime] blocks: usize,
    #[comptime] layout: Layout,
) {
    let cube_side = comptime!(layout.cube_side);
    let unit_vec4s = comptime!(layout.unit_vec4s);
    let tile_vec4s = comptime!(layout.cube_side * layout.unit_vec4s);
    let unit = UNIT_POS as usize;
    #[unroll]
    for block in 0..blocks {
        // The weights are stored, and the previous product has been read.
        sync_cube();
        load_to_shared::<E, N>(
            matrix,
            matrix_rows,
            first,
            block * tile_vec4s,
            memory,
            may_mask,
            comptime!(layout.rhs_offset()),
            comptime!(layout.tile_n()),
            comptime!(layout.tile_n() / 4),
            comptime!(layout.half_stride()),
            layout,
        );
        sync_cube();
        let products = zero_fragments(layout);
        add_products::<E>(
            &products,
            memory,
            comptime!(layout.half_stride()),
            MatrixLayout::RowMajor,
            comptime!(layout.tile_n() / FRAGMENT),
            layout,
        );
        store_products(&products, &mut memory.full, layout);
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

/// The fragments of a plane, initialised to zero.
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

/// Loads `rows` rows of `vec4s` from a matrix to `offset` in shared memory.
#[cube]
fn load_to_shared<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    matrix_rows: &Rows,
    first: usize,
    first_vec4: usize,
    memory: &mut SharedMemory<E>,
    may_mask: bool,
    #[comptime] offset: usize,
    #[comptime] rows: usize,
    #[comptime] vec4s: usize,
    #[comptime] stride: usize,
    #[comptime] layout: Layout,
) {
    let unit = UNIT_POS as usize;
    // Unrolled: the loads of different steps are independent.
    #[unroll]
    for step in 0..comptime!(rows * vec4s / layout.units()) {
        let index = unit + step * comptime!(layout.units());
        let row = index / vec4s;
        let vec4 = index % vec4s;
        let loaded = load_finite::<E, N>(
            matrix,
            matrix_rows,
            first + row,
            first_vec4 + vec4,
            may_mask,
            &mut memory.full,
            layout,
        );
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

/// Adds the product of the left and the right operand in shared memory to the fragments of a plane,
/// in `steps` of K. Both operands have the same row stride.
#[cube]
fn add_products<E: Float>(
    sums: &Sequence<cmma::Matrix<f32>>,
    memory: &mut SharedMemory<E>,
    #[comptime] stride: usize,
    #[comptime] rhs_layout: MatrixLayout,
    #[comptime] steps: usize,
    #[comptime] layout: Layout,
) {
    let (row, column) = first_fragment(layout);
    let end = comptime!(layout.half_len());
    // Strides between fragments of the right operand, along N and along K.
    let [n_stride, k_stride] = comptime!(match rhs_layout {
        MatrixLayout::ColMajor => [FRAGMENT * stride, FRAGMENT / 4],
        _ => [FRAGMENT / 4, FRAGMENT * stride],
    });
    #[unroll]
    for step in 0..steps {
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
fn store_products(
    products: &Sequence<cmma::Matrix<f32>>,
    shared: &mut Shared<[Vec4]>,
    #[comptime] layout: Layout,
) {
    let (row, column) = first_fragment(layout);
    let end = comptime!(layout.reduce_offset());
    #[unroll]
    for i in 0..comptime!(layout.plane_fragments()) {
        let offset =
            tile_row_offset(row * FRAGMENT, layout) + (column + i) * comptime!(FRAGMENT / 4);
        cmma::store(
            &mut shared[offset..end],
            products.index(i),
            comptime!(4 * layout.tile_stride() as u32),
            MatrixLayout::RowMajor,
        );
    }
    sync_cube();
}
