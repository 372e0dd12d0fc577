//! The two products of matrices by the instructions that adapters have for them, where what
//! is multiplied is in half precision.
//!
//! Which unit has which number of a product is the adapter's secret. So a product goes to
//! shared memory, and from there each unit takes the same numbers that it would have
//! [computed itself](super::tile): softmax, masks and sums are the same for both.

use cubecl::cmma::{self, MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use super::finite::load_finite;
use super::layout::{Layout, MATRIX};
use super::memory::{Four, Rows, SharedMemory, Stored, take_numbers, weights_of_row};

/// `left · rightᵀ` for a tile.
#[cube]
pub(super) fn multiply<E: Float, N: Size>(
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
    let chunk = comptime!(layout.chunk);
    let sums = zeros(layout);
    let chunks = left_rows.width.div_ceil(comptime!(layout.chunk * 4));
    for number in 0..chunks {
        // Others may still read what lies there.
        sync_cube();
        bring::<E, N>(
            left,
            left_rows,
            first_left,
            number * chunk,
            memory,
            false,
            0usize,
            comptime!([layout.down(), layout.chunk]),
            comptime!(layout.chunk_stride()),
            layout,
        );
        bring::<E, N>(
            right,
            right_rows,
            first_right,
            number * chunk,
            memory,
            false,
            comptime!(layout.second_at()),
            comptime!([layout.across(), layout.chunk]),
            comptime!(layout.chunk_stride()),
            layout,
        );
        sync_cube();
        add_products::<E>(
            &sums,
            memory,
            comptime!(layout.chunk_stride()),
            MatrixLayout::ColMajor,
            comptime!(layout.chunk * 4 / MATRIX),
            layout,
        );
    }
    put_products(&sums, &mut memory.wide, layout);
    take_numbers(products, &mut memory.wide, layout);
}

/// Puts each unit's numbers of a tile where [`add_weighted`] looks for weights.
#[cube]
pub(super) fn put_weights<E: Float>(
    weights: &mut Array<f32>,
    memory: &mut SharedMemory<E>,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.rows) {
        let at = (unit / side + i * side) * comptime!(layout.half_stride()) + unit % side;
        #[unroll]
        for c in 0..comptime!(layout.fours) {
            let mut four = Stored::<E>::new(E::from_int(0));
            #[unroll]
            for j in 0..4usize {
                let weight = weights[i * comptime!(layout.columns()) + c * 4 + j];
                four.insert(j, E::cast_from(weight));
            }
            memory.halves[at + c * side] = four;
        }
    }
}

/// `sums += weights · matrix` for a tile, with the weights that [`put_weights`] put there.
#[cube]
pub(super) fn add_weighted<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    matrix_rows: &Rows,
    first: usize,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Four>,
    may_hide: bool,
    #[comptime] blocks: usize,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let fours = comptime!(layout.fours);
    let wide = comptime!(layout.side * layout.fours);
    let unit = UNIT_POS as usize;
    #[unroll]
    for block in 0..blocks {
        // The weights are there, and nobody reads the last product any more.
        sync_cube();
        bring::<E, N>(
            matrix,
            matrix_rows,
            first,
            block * wide,
            memory,
            may_hide,
            comptime!(layout.second_at()),
            comptime!([layout.across(), layout.across() / 4]),
            comptime!(layout.half_stride()),
            layout,
        );
        sync_cube();
        let products = zeros(layout);
        add_products::<E>(
            &products,
            memory,
            comptime!(layout.half_stride()),
            MatrixLayout::RowMajor,
            comptime!(layout.across() / MATRIX),
            layout,
        );
        put_products(&products, &mut memory.wide, layout);
        #[unroll]
        for i in 0..comptime!(layout.rows) {
            let at = weights_of_row(unit / side + i * side, layout) + unit % side;
            #[unroll]
            for c in 0..fours {
                sums[(i * blocks + block) * fours + c] += memory.wide[at + c * side];
            }
        }
    }
}

/// A plane's matrices of a tile, with zeros.
#[cube]
fn zeros(#[comptime] layout: Layout) -> Sequence<cmma::Matrix<f32>> {
    let mut sums = Sequence::<cmma::Matrix<f32>>::new();
    #[unroll]
    for _ in 0..comptime!(layout.matrices()) {
        sums.push(cmma::Matrix::<f32>::from_value(
            MatrixIdent::Accumulator,
            MATRIX,
            MATRIX,
            MATRIX,
            MatrixLayout::Undefined,
            0.0f32,
        ));
    }
    sums
}

/// Brings so many rows of a matrix, so many fours wide, to where their copies lie so far apart.
#[cube]
fn bring<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    matrix_rows: &Rows,
    first: usize,
    first_four: usize,
    memory: &mut SharedMemory<E>,
    may_hide: bool,
    #[comptime] to: usize,
    #[comptime] size: [usize; 2],
    #[comptime] stride: usize,
    #[comptime] layout: Layout,
) {
    let unit = UNIT_POS as usize;
    let fours = comptime!(size[1]);
    // Loads of one step need not wait for those of another.
    #[unroll]
    for step in 0..comptime!(size[0] * size[1] / layout.units()) {
        let at = unit + step * comptime!(layout.units());
        let row = at / fours;
        let four = at % fours;
        let loaded = load_finite::<E, N>(
            matrix,
            matrix_rows,
            first + row,
            first_four + four,
            may_hide,
            &mut memory.wide,
            layout,
        );
        memory.halves[to + row * stride + four] = loaded;
    }
}

/// Where in a tile a plane's first matrix is: rows and columns of matrices before it. The
/// others are those next to it.
#[cube]
fn place(#[comptime] layout: Layout) -> (usize, usize) {
    let number = PLANE_POS as usize * comptime!(layout.matrices());
    let in_a_row = comptime!(layout.across() / MATRIX);
    (number / in_a_row, number % in_a_row)
}

/// Adds to a plane's matrices the product of what lies first in half precision, row by row, and
/// what lies second, in so many steps. The rows of both lie so far apart.
#[cube]
fn add_products<E: Float>(
    sums: &Sequence<cmma::Matrix<f32>>,
    memory: &mut SharedMemory<E>,
    #[comptime] stride: usize,
    #[comptime] second_layout: MatrixLayout,
    #[comptime] steps: usize,
    #[comptime] layout: Layout,
) {
    let (row, column) = place(layout);
    let end = comptime!(layout.halves());
    // How far the next matrix of the second lies, to the right of the product and deeper into it.
    let [by_column, by_step] = comptime!(match second_layout {
        MatrixLayout::ColMajor => [MATRIX * stride, MATRIX / 4],
        _ => [MATRIX / 4, MATRIX * stride],
    });
    #[unroll]
    for step in 0..steps {
        let from = row * comptime!(MATRIX * stride) + step * comptime!(MATRIX / 4);
        let first = cmma::Matrix::<Stored<E>>::from_slice(
            MatrixIdent::A,
            MATRIX,
            MATRIX,
            MATRIX,
            MatrixLayout::RowMajor,
            &memory.halves[from..end],
            comptime!(4 * stride as u32),
        );
        #[unroll]
        for i in 0..comptime!(layout.matrices()) {
            let from = comptime!(layout.second_at()) + (column + i) * by_column + step * by_step;
            let second = cmma::Matrix::<Stored<E>>::from_slice(
                MatrixIdent::B,
                MATRIX,
                MATRIX,
                MATRIX,
                second_layout,
                &memory.halves[from..end],
                comptime!(4 * stride as u32),
            );
            let sum = sums.index(i);
            cmma::execute(&first, &second, sum, sum);
        }
    }
}

/// Puts a plane's matrices where units look for their numbers of a tile, and waits until all
/// are there.
#[cube]
fn put_products(
    products: &Sequence<cmma::Matrix<f32>>,
    wide: &mut Shared<[Four]>,
    #[comptime] layout: Layout,
) {
    let (row, column) = place(layout);
    let end = comptime!(layout.words_at());
    #[unroll]
    for i in 0..comptime!(layout.matrices()) {
        let at = weights_of_row(row * MATRIX, layout) + (column + i) * comptime!(MATRIX / 4);
        cmma::store(
            &mut wide[at..end],
            products.index(i),
            comptime!(4 * layout.weight_stride() as u32),
            MatrixLayout::RowMajor,
        );
    }
    sync_cube();
}
