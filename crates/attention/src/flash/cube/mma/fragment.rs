//! Fragments of matrices in registers.
//!
//! A fragment is a list of 32-bit words per lane: two elements in half precision, or one in `f32`.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::*;

use super::layout::{FRAGMENT, Instructions, MmaLayout, MmaType};
use super::shared::{commit_copies, copy_rows, shared_index, wait_for_copies};
use super::wgmma;
use crate::flash::cube::memory::Matrix;

/// Two adjacent elements of a row.
pub(super) type Pair<E> = Vector<E, Const<2>>;

/// Which operand a tile in shared memory is, and along which axis its rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    /// The left one; rows are rows of the product.
    Left,
    /// The right one; rows are columns of the product.
    Right,
    /// The right one; rows are summed over.
    RightRows,
}

/// The part of a tile in shared memory for a step of a matmul, from a row and a column on: 16 rows
/// of the product as a left operand, or 16 columns as two right operands.
#[cube]
fn load_fragments<E: Float, N: Size>(
    tile: &Shared<[Vector<E, N>]>,
    row: usize,
    column: usize,
    #[comptime] size: usize,
    #[comptime] operand: Operand,
    #[comptime] layout: MmaLayout,
) -> Array<u32> {
    let ty = comptime!(layout.ty);
    let lane = UNIT_POS_PLANE as usize;
    let mut words = Array::<u32>::new(4usize);
    if comptime!(operand == Operand::RightRows && ty.is_split()) {
        // `ldmatrix` transposes 16-bit elements only. Rows are in the order in which the
        // accumulators of a lane are the left operand.
        let stride = comptime!(layout.row_stride(size));
        let first = (row + lane % 4 * 2) * stride + column + lane / 4;
        #[unroll]
        for i in 0..4usize {
            words[i] = u32::reinterpret(tile[first + comptime!(i % 2 * stride + i / 2 * 8)]);
        }
    } else {
        let mut lane_row = lane % 16;
        let mut lane_column = lane / 16;
        if comptime!(operand == Operand::Right) {
            lane_row = lane / 16 * 8 + lane % 8;
            lane_column = lane / 8 % 2;
        }
        let vec = comptime!(ty.vec());
        let rows = comptime!(layout.shared_rows());
        let index = shared_index(
            row + lane_row,
            column / vec + lane_column,
            rows,
            size,
            layout,
        );
        let mma = MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize);
        let ident = comptime!(match operand {
            Operand::Left => MatrixIdent::A,
            _ => MatrixIdent::B,
        });
        let is_transposed = comptime!(operand == Operand::RightRows);
        let source = &tile[index..index + vec];
        if comptime!(ty.is_split()) {
            let loaded =
                mma.load_matrix::<Vector<E, N>, Const<1>>(source, ident, 4usize, is_transposed);
            #[unroll]
            for i in 0..4usize {
                words[i] = u32::reinterpret(loaded[i]);
            }
        } else {
            let loaded =
                mma.load_matrix::<Vector<E, N>, Const<2>>(source, ident, 4usize, is_transposed);
            #[unroll]
            for i in 0..4usize {
                words[i] = u32::reinterpret(loaded[i]);
            }
        }
    }
    words
}

/// Rounds elements in `f32` to TF32, and returns the differences. Products with both have a relative
/// error of about 2e-7.
#[cube]
fn split(words: &mut Array<u32>, #[comptime] len: usize, #[comptime] ty: MmaType) -> Array<u32> {
    let mut rest = Array::<u32>::new(len);
    if comptime!(ty.is_split()) {
        #[unroll]
        for i in 0..len {
            // TF32 has 13 bits less. Truncated elements would all be too small.
            let high = (words[i] + 0x1000u32) & 0xffff_e000u32;
            rest[i] = u32::reinterpret(f32::reinterpret(words[i]) - f32::reinterpret(high));
            words[i] = high;
        }
    }
    rest
}

#[cube]
fn multiply_add(
    a: Vector<u32, Const<4>>,
    b: Vector<u32, Const<2>>,
    c: Vector<f32, Const<4>>,
    #[comptime] step: usize,
    #[comptime] name: &str,
) -> Vector<f32, Const<4>> {
    let d: Vector<f32, Const<4>>;
    gpu_asm!(
        "mma.sync.aligned.m16n8k{step}.row.col.f32.{name}.{name}.f32 {d}, ",
        "{{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {{{c0}, {c1}, {c2}, {c3}}};",
        a0 = in(_) a.extract(0usize), a1 = in(_) a.extract(1usize),
        a2 = in(_) a.extract(2usize), a3 = in(_) a.extract(3usize),
        b0 = in(_) b.extract(0usize), b1 = in(_) b.extract(1usize),
        c0 = in(_) c.extract(0usize), c1 = in(_) c.extract(1usize),
        c2 = in(_) c.extract(2usize), c3 = in(_) c.extract(3usize),
        d = out(_) d, options(pure, nomem),
    );
    d
}

/// Adds the product of left operand number `operand` and two adjacent right operands to two adjacent
/// fragments of `sums`, the first of which has number `index`.
#[cube]
fn add_products(
    left: &Array<u32>,
    right: &Array<u32>,
    sums: &mut Array<Pair<f32>>,
    #[comptime] operand: usize,
    #[comptime] index: usize,
    #[comptime] ty: MmaType,
) {
    let mut a = Vector::<u32, Const<4>>::new(0u32);
    #[unroll]
    for i in 0..4usize {
        a.insert(i, left[operand * 4 + i]);
    }
    #[unroll]
    for i in 0..2usize {
        let mut b = Vector::<u32, Const<2>>::new(0u32);
        let mut c = Vector::<f32, Const<4>>::new(0.0f32);
        #[unroll]
        for j in 0..2usize {
            b.insert(j, right[i * 2 + j]);
            let pair = sums[(index + i) * 2 + j];
            c.insert(comptime!(2 * j), pair.extract(0usize));
            c.insert(comptime!(2 * j + 1), pair.extract(1usize));
        }
        let d = multiply_add(a, b, c, comptime!(ty.step()), comptime!(ty.name()));
        #[unroll]
        for j in 0..2usize {
            let mut pair = Pair::<f32>::new(0.0f32);
            pair.insert(0usize, d.extract(comptime!(2 * j)));
            pair.insert(1usize, d.extract(comptime!(2 * j + 1)));
            sums[(index + i) * 2 + j] = pair;
        }
    }
}

/// The left operand of step `step` of a matmul from the accumulators of another one, of which
/// `first` is the first of the same rows.
#[cube]
pub(super) fn to_left_operand<E: Float>(
    sums: &Array<Pair<f32>>,
    #[comptime] first: usize,
    #[comptime] step: usize,
    #[comptime] ty: MmaType,
) -> Array<u32> {
    let mut words = Array::<u32>::new(4usize);
    if comptime!(ty.is_split()) {
        let index = comptime!((first + step) * 2);
        #[unroll]
        for i in 0..4usize {
            let pair = sums[index + comptime!(i % 2)];
            words[i] = u32::reinterpret(pair.extract(comptime!(i / 2)));
        }
    } else {
        let index = comptime!((first + step * 2) * 2);
        #[unroll]
        for i in 0..4usize {
            words[i] = u32::reinterpret(Pair::<E>::cast_from(sums[index + i]));
        }
    }
    words
}

/// Rows of a cube that are the left operand of several products.
#[derive(CubeType)]
pub(super) struct Left<E: Float, N: Size> {
    /// For `mma`: the fragments of the plane.
    words: Array<u32>,
    /// For `wgmma`: all rows in shared memory.
    pub(super) rows: Shared<[Vector<E, N>]>,
}

/// Loads the rows of a cube as a left operand. With `mma` they are copied to `tiles` and then loaded
/// to registers, so that the tiles can be used for other rows.
#[cube]
pub(super) fn load_left<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    tiles: &mut Shared<[Vector<E, N>]>,
    plane_row: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Left<E, N> {
    let count = comptime!(layout.tile_m());
    let mut rows = Shared::<[Vector<E, N>]>::new_aligned_slice(
        comptime!((layout.left_rows() * size).max(layout.ty.vec())),
        comptime!(layout.alignment()),
    );
    if comptime!(layout.instructions == Instructions::Wgmma) {
        copy_rows::<E, N>(matrix, &mut rows, 0usize, count, count, size, layout);
        // Complete before the first tile of columns.
        commit_copies();
        let words = Array::<u32>::new(0usize);
        Left::<E, N> { words, rows }
    } else {
        let shared_rows = comptime!(layout.shared_rows());
        copy_rows::<E, N>(matrix, tiles, 0usize, count, shared_rows, size, layout);
        commit_copies();
        wait_for_copies(0usize, layout);
        let words = load_left_fragments::<E, N>(&*tiles, plane_row, size, layout);
        sync_cube();
        Left::<E, N> { words, rows }
    }
}

/// The rows of a plane as left operands: for each step, for each fragment of rows.
#[cube]
fn load_left_fragments<E: Float, N: Size>(
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Array<u32> {
    let ty = comptime!(layout.ty);
    let fragments = comptime!(layout.fragments);
    let mut operands = Array::<u32>::new(comptime!(fragments * (size / ty.step()) * 4));
    #[unroll]
    for step in 0..comptime!(size / ty.step()) {
        #[unroll]
        for fragment in 0..fragments {
            let row = first_row + fragment * FRAGMENT;
            let column = comptime!(step * ty.step());
            let words = load_fragments::<E, N>(tile, row, column, size, Operand::Left, layout);
            #[unroll]
            for i in 0..4usize {
                operands[(step * fragments + fragment) * 4 + i] = words[i];
            }
        }
    }
    operands
}

/// `left · tileᵀ` for a tile with a row of `size` for each column of the product in shared memory.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    left: &Left<E, N>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Array<Pair<f32>> {
    if comptime!(layout.instructions == Instructions::Wgmma) {
        wgmma::matmul_nt::<E, N>(left, tile, first_row, size, layout)
    } else {
        fragments_nt::<E, N>(&left.words, tile, first_row, size, layout)
    }
}

#[cube]
fn fragments_nt<E: Float, N: Size>(
    operands: &Array<u32>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Array<Pair<f32>> {
    let ty = comptime!(layout.ty);
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    let len = comptime!(fragments * columns / 4);
    let mut products = zero_pairs(len);
    // Separately, because matrix instructions truncate their sums.
    let mut rest_products = zero_pairs(comptime!(if ty.is_split() { len } else { 0 }));
    #[unroll]
    for step in 0..comptime!(size / ty.step()) {
        let mut left = Array::<u32>::new(comptime!(fragments * 4));
        #[unroll]
        for i in 0..comptime!(fragments * 4) {
            left[i] = operands[step * comptime!(fragments * 4) + i];
        }
        let left_rest = split(&mut left, comptime!(fragments * 4), ty);
        #[unroll]
        for column in 0..comptime!(columns / FRAGMENT) {
            let row = first_row + column * FRAGMENT;
            let first = comptime!(step * ty.step());
            let mut right = load_fragments::<E, N>(tile, row, first, size, Operand::Right, layout);
            let right_rest = split(&mut right, 4usize, ty);
            #[unroll]
            for fragment in 0..fragments {
                let index = comptime!(fragment * columns / 8 + column * 2);
                if comptime!(ty.is_split()) {
                    add_products(&left_rest, &right, &mut rest_products, fragment, index, ty);
                    add_products(&left, &right_rest, &mut rest_products, fragment, index, ty);
                }
                add_products(&left, &right, &mut products, fragment, index, ty);
            }
        }
    }
    if comptime!(ty.is_split()) {
        #[unroll]
        for i in 0..len {
            products[i] += rest_products[i];
        }
    }
    products
}

/// `sums += weights · tile` for a tile with a row of `size` for each column of the weights in shared
/// memory.
///
/// Matrix instructions truncate their sums. In `f32` the product of each tile is added separately,
/// with rounding, so that the error does not grow with the number of tiles.
#[cube]
pub(super) fn add_matmul<E: Float, N: Size>(
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) {
    if comptime!(layout.instructions == Instructions::Wgmma) {
        wgmma::add_matmul::<E, N>(weights, tile, first_row, sums, size, layout);
    } else if comptime!(layout.ty.is_split()) {
        let len = comptime!(layout.fragments * size / 4);
        let mut products = zero_pairs(len);
        accumulate::<E, N>(weights, tile, first_row, &mut products, size, layout);
        #[unroll]
        for i in 0..len {
            sums[i] += products[i];
        }
    } else {
        accumulate::<E, N>(weights, tile, first_row, sums, size, layout);
    }
}

#[cube]
fn accumulate<E: Float, N: Size>(
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) {
    let ty = comptime!(layout.ty);
    let fragments = comptime!(layout.fragments);
    let columns = comptime!(layout.columns);
    #[unroll]
    for step in 0..comptime!(columns / ty.step()) {
        let mut left = Array::<u32>::new(comptime!(fragments * 4));
        #[unroll]
        for fragment in 0..fragments {
            let first = comptime!(fragment * columns / 8);
            let words = to_left_operand::<E>(weights, first, step, ty);
            #[unroll]
            for i in 0..4usize {
                left[fragment * 4 + i] = words[i];
            }
        }
        let left_rest = split(&mut left, comptime!(fragments * 4), ty);
        #[unroll]
        for column in 0..comptime!(size / FRAGMENT) {
            let row = first_row + comptime!(step * ty.step());
            let first = column * FRAGMENT;
            let mut right =
                load_fragments::<E, N>(tile, row, first, size, Operand::RightRows, layout);
            let right_rest = split(&mut right, 4usize, ty);
            #[unroll]
            for fragment in 0..fragments {
                let index = comptime!(fragment * size / 8 + column * 2);
                if comptime!(ty.is_split()) {
                    add_products(&left_rest, &right, sums, fragment, index, ty);
                    add_products(&left, &right_rest, sums, fragment, index, ty);
                }
                add_products(&left, &right, sums, fragment, index, ty);
            }
        }
    }
}

/// Two to the power of `x`, with a relative error of about 2e-7.
#[cube]
pub(super) fn exp2(x: f32) -> f32 {
    let power: f32;
    gpu_asm!("ex2.approx.ftz.f32 {}, {};", out(_) power, in(_) x, options(pure, nomem));
    power
}

/// The maximum of the four lanes of a row.
#[cube]
pub(super) fn row_max(value: f32) -> f32 {
    let pair = max(value, plane_shuffle_xor(value, 1u32));
    max(pair, plane_shuffle_xor(pair, 2u32))
}

/// The sum of the four lanes of a row.
#[cube]
pub(super) fn row_sum(value: f32) -> f32 {
    let pair = value + plane_shuffle_xor(value, 1u32);
    pair + plane_shuffle_xor(pair, 2u32)
}

#[cube]
pub(super) fn zero_pairs(#[comptime] len: usize) -> Array<Pair<f32>> {
    let mut pairs = Array::<Pair<f32>>::new(len);
    #[unroll]
    for i in 0..len {
        pairs[i] = Pair::<f32>::new(0.0f32);
    }
    pairs
}
