//! Fragments of matrices in registers, and tiles of rows in shared memory.

use cubecl::cmma::{MatrixIdent, MmaDefinition};
use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::layout::{FRAGMENT, VEC8, row_stride};
use crate::flash::cube::memory::Matrix;

/// Two adjacent elements of a row.
pub(super) type Pair<E> = Vector<E, Const<2>>;

/// `a · b + c` for fragments of 16 x 16, 16 x 8 and 16 x 8.
pub(super) type Mma<E> = MmaDefinition<E, E, f32>;

#[cube]
pub(super) fn new_mma<E: Float>() -> Mma<E> {
    MmaDefinition::<E, E, f32>::new(16usize, 8usize, 16usize)
}

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
) {
    let vec8s = comptime!(size / VEC8);
    let stride = comptime!(row_stride(size));
    let count = comptime!(rows * (size / VEC8));
    #[unroll]
    for step in 0..comptime!(count.div_ceil(units)) {
        let index = UNIT_POS as usize + step * units;
        if index < count {
            let row = index / vec8s;
            let column = index % vec8s;
            let target = offset + row * stride + column;
            let is_inside = matrix.has_row(row);
            let source = select(is_inside, matrix.vec8_index(row, column), 0usize);
            let length = select(is_inside, 1usize, 0usize);
            copy_async_checked(
                &matrix.elements[source..source + length],
                &mut tile[target..target + 1],
                comptime!(VEC8 as u32),
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

/// Four fragments of 8 x 8 of a tile in shared memory, which make up 16 rows and 16 columns from
/// row `row` and vec8 `column` on.
///
/// For [`Operand::Left`] they are a left operand, else two right operands.
#[cube]
pub(super) fn load_fragments<E: Float, N: Size>(
    mma: &Mma<E>,
    tile: &Shared<[Vector<E, N>]>,
    row: usize,
    column: usize,
    #[comptime] stride: usize,
    #[comptime] operand: Operand,
) -> Array<Pair<E>> {
    let lane = UNIT_POS_PLANE as usize;
    let mut lane_row = lane % 16;
    let mut lane_column = lane / 16;
    if comptime!(operand == Operand::Right) {
        lane_row = lane / 16 * 8 + lane % 8;
        lane_column = lane / 8 % 2;
    }
    let index = (row + lane_row) * stride + column + lane_column;
    mma.load_matrix::<Vector<E, N>, Const<2>>(
        &tile[index..index + 1],
        comptime!(match operand {
            Operand::Left => MatrixIdent::A,
            _ => MatrixIdent::B,
        }),
        4usize,
        comptime!(operand == Operand::RightRows),
    )
}

/// Adds the product of a left operand and two adjacent right operands to two adjacent fragments of
/// `sums`, the first of which has number `index`.
#[cube]
pub(super) fn add_products<E: Float>(
    mma: &Mma<E>,
    left: &Array<Pair<E>>,
    right: &Array<Pair<E>>,
    sums: &mut Array<Pair<f32>>,
    #[comptime] index: usize,
) {
    #[unroll]
    for i in 0..2usize {
        let mut b = Array::<Pair<E>>::new(2usize);
        let mut c = Array::<Pair<f32>>::new(2usize);
        #[unroll]
        for j in 0..2usize {
            b[j] = right[i * 2 + j];
            c[j] = sums[(index + i) * 2 + j];
        }
        let product = mma.execute(left, &b, &c);
        #[unroll]
        for j in 0..2usize {
            sums[(index + i) * 2 + j] = product[j];
        }
    }
}

/// Left operand number `index` of a list of operands.
#[cube]
pub(super) fn left_operand<E: Float>(
    operands: &Array<Pair<E>>,
    #[comptime] index: usize,
) -> Array<Pair<E>> {
    let mut left = Array::<Pair<E>>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        left[i] = operands[index * 4 + i];
    }
    left
}

/// The left operand of a matmul from accumulators `index` and `index + 1` of another one.
#[cube]
pub(super) fn to_left_operand<E: Float>(
    sums: &Array<Pair<f32>>,
    #[comptime] index: usize,
) -> Array<Pair<E>> {
    let mut left = Array::<Pair<E>>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        left[i] = Pair::<E>::cast_from(sums[index * 2 + i]);
    }
    left
}

/// Loads the rows of a plane as left operands: for each fragment of rows, for each step.
#[cube]
pub(super) fn load_left_operands<E: Float, N: Size>(
    mma: &Mma<E>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] fragments: usize,
    #[comptime] size: usize,
) -> Array<Pair<E>> {
    let stride = comptime!(row_stride(size));
    let steps = comptime!(size / FRAGMENT);
    let mut operands = Array::<Pair<E>>::new(comptime!(fragments * (size / FRAGMENT) * 4));
    #[unroll]
    for fragment in 0..fragments {
        #[unroll]
        for step in 0..steps {
            let row = first_row + fragment * FRAGMENT;
            let loaded = load_fragments::<E, N>(mma, tile, row, step * 2, stride, Operand::Left);
            #[unroll]
            for i in 0..4usize {
                operands[(fragment * steps + step) * 4 + i] = loaded[i];
            }
        }
    }
    operands
}

/// `left · tileᵀ` for a tile of `columns` rows of `size` in shared memory.
#[cube]
pub(super) fn matmul_nt<E: Float, N: Size>(
    mma: &Mma<E>,
    left: &Array<Pair<E>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
) -> Array<Pair<f32>> {
    let stride = comptime!(row_stride(size));
    let steps = comptime!(size / FRAGMENT);
    let mut products = Array::<Pair<f32>>::new(comptime!(fragments * columns / 4));
    #[unroll]
    for step in 0..steps {
        #[unroll]
        for column in 0..comptime!(columns / FRAGMENT) {
            let row = first_row + column * FRAGMENT;
            let right = load_fragments::<E, N>(mma, tile, row, step * 2, stride, Operand::Right);
            #[unroll]
            for fragment in 0..fragments {
                let operand = left_operand::<E>(left, comptime!(fragment * steps + step));
                let index = comptime!(fragment * columns / 8 + column * 2);
                add_products::<E>(mma, &operand, &right, &mut products, index);
            }
        }
    }
    products
}

/// `sums += weights · tile` for a tile of `columns` rows of `size` in shared memory.
#[cube]
pub(super) fn add_matmul<E: Float, N: Size>(
    mma: &Mma<E>,
    weights: &Array<Pair<f32>>,
    tile: &Shared<[Vector<E, N>]>,
    first_row: usize,
    sums: &mut Array<Pair<f32>>,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
) {
    let stride = comptime!(row_stride(size));
    #[unroll]
    for step in 0..comptime!(columns / FRAGMENT) {
        let mut left = Array::<Pair<E>>::new(comptime!(fragments * 4));
        #[unroll]
        for fragment in 0..fragments {
            let operand =
                to_left_operand::<E>(weights, comptime!(fragment * columns / 8 + step * 2));
            #[unroll]
            for i in 0..4usize {
                left[fragment * 4 + i] = operand[i];
            }
        }
        #[unroll]
        for column in 0..comptime!(size / FRAGMENT) {
            let row = first_row + step * FRAGMENT;
            let right =
                load_fragments::<E, N>(mma, tile, row, column * 2, stride, Operand::RightRows);
            #[unroll]
            for fragment in 0..fragments {
                let operand = left_operand::<E>(&left, fragment);
                let index = comptime!(fragment * size / 8 + column * 2);
                add_products::<E>(mma, &operand, &right, sums, index);
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
