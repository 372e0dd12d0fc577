//! Fragments of matrices in registers, and tiles of rows in shared memory.
//!
//! A fragment is a list of 32-bit words per lane: two elements in half precision, or one in `f32`.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::layout::{FRAGMENT, MmaType};
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

/// Starts the copy of `rows` rows of a matrix to shared memory. Rows out of range become zeros.
#[cube]
pub(super) fn copy_rows<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    tile: &mut Shared<[Vector<E, N>]>,
    offset: usize,
    #[comptime] rows: usize,
    #[comptime] size: usize,
    #[comptime] units: usize,
    #[comptime] ty: MmaType,
) {
    let vec = comptime!(ty.vec());
    let vecs = comptime!(size / ty.vec());
    let stride = comptime!(ty.row_stride(size));
    let count = comptime!(rows * (size / ty.vec()));
    #[unroll]
    for step in 0..comptime!(count.div_ceil(units)) {
        let index = UNIT_POS as usize + step * units;
        if index < count {
            let row = index / vecs;
            let column = index % vecs * vec;
            let target = offset + row * stride + column;
            let is_inside = matrix.has_row(row);
            let source = select(is_inside, matrix.index(row, column), 0usize);
            let length = select(is_inside, vec, 0usize);
            copy_async_checked(
                &matrix.elements[source..source + length],
                &mut tile[target..target + vec],
                comptime!(ty.vec() as u32),
            );
        }
    }
}

/// Ends a group of copies.
#[cube]
pub(super) fn commit_copies() {
    gpu_asm!("cp.async.commit_group;");
}

/// Waits until all but the last `pending` groups of copies of the cube are complete.
#[cube]
pub(super) fn wait_for_copies(#[comptime] pending: usize) {
    gpu_asm!("cp.async.wait_group {};", const pending);
    sync_cube();
}

/// The part of a tile in shared memory for a step of a matmul, from a row and a column on: 16 rows
/// of the product as a left operand, or 16 columns as two right operands.
#[cube]
fn load_fragments<E: Float, N: Size>(
    tile: &Shared<[Vector<E, N>]>,
    row: usize,
    column: usize,
    #[comptime] stride: usize,
    #[comptime] operand: Operand,
    #[comptime] ty: MmaType,
) -> Array<u32> {
    let lane = UNIT_POS_PLANE as usize;
    let mut words = Array::<u32>::new(4usize);
    if comptime!(operand == Operand::RightRows && ty.is_split()) {
        // `ldmatrix` transposes 16-bit elements only. Rows are in the order in which the
        // accumulators of a lane are the left operand.
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
        let index = (row + lane_row) * stride + column + lane_column * vec;
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
fn to_left_operand<E: Float>(
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

/// Loads the rows of a plane as left operands: for each step, for each fragment of rows.
#[cube]
pub(super) fn load_left_operands<E: Float, N: Size>(
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] fragments: usize,
    #[comptime] size: usize,
    #[comptime] ty: MmaType,
) -> Array<u32> {
    let stride = comptime!(ty.row_stride(size));
    let mut operands = Array::<u32>::new(comptime!(fragments * (size / ty.step()) * 4));
    #[unroll]
    for step in 0..comptime!(size / ty.step()) {
        #[unroll]
        for fragment in 0..fragments {
            let row = first_row + fragment * FRAGMENT;
            let column = comptime!(step * ty.step());
            let words = load_fragments::<E, N>(tile, row, column, stride, Operand::Left, ty);
            #[unroll]
            for i in 0..4usize {
                operands[(step * fragments + fragment) * 4 + i] = words[i];
            }
        }
    }
    operands
}

/// `left · tileᵀ` for a tile of `columns` rows of `size` in shared memory.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    operands: &Array<u32>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
    #[comptime] ty: MmaType,
) -> Array<Pair<f32>> {
    let stride = comptime!(ty.row_stride(size));
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
            let mut right = load_fragments::<E, N>(tile, row, first, stride, Operand::Right, ty);
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

/// `sums += weights · tile` for a tile of `columns` rows of `size` in shared memory.
///
/// Matrix instructions truncate their sums. In `f32` the product of each tile is added separately,
/// with rounding, so that the error does not grow with the number of tiles.
#[cube]
pub(super) fn add_matmul<E: Float, N: Size>(
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
    #[comptime] ty: MmaType,
) {
    if comptime!(ty.is_split()) {
        let len = comptime!(fragments * size / 4);
        let mut products = zero_pairs(len);
        accumulate::<E, N>(
            weights,
            tile,
            first_row,
            &mut products,
            fragments,
            columns,
            size,
            ty,
        );
        #[unroll]
        for i in 0..len {
            sums[i] += products[i];
        }
    } else {
        accumulate::<E, N>(weights, tile, first_row, sums, fragments, columns, size, ty);
    }
}

#[cube]
fn accumulate<E: Float, N: Size>(
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
    #[comptime] ty: MmaType,
) {
    let stride = comptime!(ty.row_stride(size));
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
                load_fragments::<E, N>(tile, row, first, stride, Operand::RightRows, ty);
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
