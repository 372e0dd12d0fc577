//! What the kernels have in common: numbers that a cube brings into its shared memory, and
//! the two products of matrices that attention is made of.
//!
//! A cube has `side · side` units. Unit `(down, across)` of it has `rows` rows, `side` apart
//! (`down`, `down + side`, ...), and `fours` times four neighbouring columns, those of one
//! unit next to those of the next. Everything in shared memory is four numbers wide, and a
//! unit multiplies all its rows with all its columns: so a load feeds many multiplications.

use cubecl::prelude::*;

use super::finite::{add_non_finite, load_finite};
use super::layout::{By, Layout};
use super::matrices;
use super::memory::{
    Four, Rows, SharedMemory, load, put_numbers, store, unit_position, weights_of_row,
};

/// `left · rightᵀ` for a tile: each unit's rows of `left` by its columns, which are rows of
/// `right`. `products` has all of a row before those of the next.
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
    if comptime!(layout.by == By::Matrices) {
        matrices::multiply::<E, N>(
            left,
            left_rows,
            first_left,
            right,
            right_rows,
            first_right,
            memory,
            products,
            layout,
        );
    } else {
        let shared = &mut memory.wide;
        let side = comptime!(layout.side);
        let rows = comptime!(layout.rows);
        let columns = comptime!(layout.columns());
        let chunk = comptime!(layout.chunk);
        let stride = comptime!(layout.chunk_stride());
        let right_at = comptime!(layout.down() * layout.chunk_stride());
        let unit = UNIT_POS as usize;
        let down = unit / side;
        let across = unit % side;
        #[unroll]
        for i in 0..comptime!(layout.own()) {
            products[i] = 0.0f32;
        }
        let chunks = left_rows.width.div_ceil(comptime!(chunk * 4));
        for number in 0..chunks {
            // Others may still read what lies there.
            sync_cube();
            for step in 0..comptime!(rows * chunk / side) {
                let at = unit + step * comptime!(layout.units());
                let row = at / chunk;
                let four = at % chunk;
                shared[row * stride + four] = Four::cast_from(load::<E, N>(
                    left,
                    left_rows,
                    first_left + row,
                    number * chunk + four,
                ));
            }
            for step in 0..comptime!(columns * chunk / side) {
                let at = unit + step * comptime!(layout.units());
                let row = at / chunk;
                let four = at % chunk;
                // A unit's columns lie `side` apart from each other here: then units next to each
                // other read rows next to each other, which lie in different banks.
                let j = row / side;
                let from = (j / 4) * comptime!(4 * side) + (row % side) * 4 + j % 4;
                shared[right_at + row * stride + four] = Four::cast_from(load::<E, N>(
                    right,
                    right_rows,
                    first_right + from,
                    number * chunk + four,
                ));
            }
            sync_cube();
            for four in 0..chunk {
                let mut rights = Array::<Four>::new(columns);
                #[unroll]
                for j in 0..columns {
                    rights[j] = shared[right_at + (across + j * side) * stride + four];
                }
                #[unroll]
                for i in 0..rows {
                    let lefts = shared[(down + i * side) * stride + four];
                    #[unroll]
                    for j in 0..columns {
                        let other = rights[j];
                        let mut sum = products[i * columns + j];
                        #[unroll]
                        for k in 0..4usize {
                            sum = fma(lefts.extract(k), other.extract(k), sum);
                        }
                        products[i * columns + j] = sum;
                    }
                }
            }
        }
    }
}

/// Puts each unit's numbers of a tile where [`add_weighted`] looks for weights.
#[cube]
pub(super) fn put_weights<E: Float>(
    weights: &mut Array<f32>,
    memory: &mut SharedMemory<E>,
    #[comptime] layout: Layout,
) {
    if comptime!(layout.by == By::Matrices) {
        matrices::put_weights::<E>(weights, memory, layout);
    } else {
        put_numbers(weights, &mut memory.wide, layout);
    }
}

/// `sums += weights · matrix` for a tile, with the weights that [`put_weights`] put there:
/// each unit's rows of the weights by four columns of each block of the matrix.
///
/// Where keys may be hidden, rows of the matrix whose weight is zero contribute nothing even if
/// they are not finite.
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
    // The last one to read it has waited for others since.
    if may_hide && UNIT_POS == 0u32 {
        memory.wide[comptime!(layout.flag_at())] = Four::new(0.0f32);
    }
    if comptime!(layout.by == By::Matrices) {
        matrices::add_weighted::<E, N>(
            matrix,
            matrix_rows,
            first,
            memory,
            sums,
            may_hide,
            blocks,
            layout,
        );
    } else {
        let shared = &mut memory.wide;
        let side = comptime!(layout.side);
        let rows = comptime!(layout.rows);
        let fours = comptime!(layout.fours);
        let through = comptime!(layout.through());
        let wide = comptime!(layout.side * layout.fours);
        let unit = UNIT_POS as usize;
        let down = unit / side;
        let across = unit % side;
        #[unroll]
        for block in 0..blocks {
            for part in 0..comptime!(layout.across() / layout.through()) {
                // The weights are there, and nobody reads the last part any more.
                sync_cube();
                for step in 0..comptime!(layout.through() * layout.fours / layout.side) {
                    let at = unit + step * comptime!(layout.units());
                    let loaded = load_finite::<E, N>(
                        matrix,
                        matrix_rows,
                        first + part * through + at / wide,
                        block * wide + at % wide,
                        may_hide,
                        shared,
                        layout,
                    );
                    shared[at] = Four::cast_from(loaded);
                }
                sync_cube();
                for four in 0..comptime!(layout.through() / 4) {
                    let mut others = Array::<Four>::new(comptime!(layout.columns()));
                    #[unroll]
                    for j in 0..4usize {
                        #[unroll]
                        for c in 0..fours {
                            others[j * fours + c] =
                                shared[(four * 4 + j) * wide + c * side + across];
                        }
                    }
                    #[unroll]
                    for i in 0..rows {
                        let at = weights_of_row(down + i * side, layout);
                        let weights = shared[at + part * comptime!(layout.through() / 4) + four];
                        #[unroll]
                        for c in 0..fours {
                            let mut sum = sums[(i * blocks + block) * fours + c];
                            #[unroll]
                            for j in 0..4usize {
                                sum =
                                    fma(Four::new(weights.extract(j)), others[j * fours + c], sum);
                            }
                            sums[(i * blocks + block) * fours + c] = sum;
                        }
                    }
                }
            }
        }
    }
    if may_hide {
        sync_cube();
        if memory.wide[comptime!(layout.flag_at())].extract(0usize) > 0.0f32 {
            add_non_finite::<E, N>(matrix, matrix_rows, first, memory, sums, blocks, layout);
        }
    }
}

/// Writes the sums of [`add_weighted`] to the rows of a result from `first` on, each
/// divided by its row's number.
#[cube]
pub(super) fn store_sums<E: Float, N: Size>(
    result: &mut [Vector<E, N>],
    result_rows: &Rows,
    first: usize,
    sums: &Array<Four>,
    by: &Array<f32>,
    #[comptime] blocks: usize,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let fours = comptime!(layout.fours);
    let (down, across) = unit_position(layout);
    #[unroll]
    for i in 0..comptime!(layout.rows) {
        #[unroll]
        for block in 0..blocks {
            #[unroll]
            for c in 0..fours {
                store::<E, N>(
                    result,
                    result_rows,
                    first + down + i * side,
                    (block * fours + c) * side + across,
                    sums[(i * blocks + block) * fours + c] / Four::new(by[i]),
                );
            }
        }
    }
}

/// The largest of the numbers that the units of a row have, for each row of a unit, or
/// their sum.
#[cube]
pub(super) fn across_units(
    numbers: &mut Array<f32>,
    shared: &mut Shared<[Four]>,
    #[comptime] is_sum: bool,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let unit = UNIT_POS as usize;
    let down = unit / side;
    // Nobody reads the last words any more: between two calls units wait for each other.
    #[unroll]
    for part in 0..comptime!(layout.rows / 4) {
        let mut four = Four::new(0.0f32);
        #[unroll]
        for i in 0..4usize {
            four.insert(i, numbers[part * 4 + i]);
        }
        shared[comptime!(layout.words_at()) + part * comptime!(layout.units()) + unit] = four;
    }
    sync_cube();
    #[unroll]
    for part in 0..comptime!(layout.rows / 4) {
        let at = comptime!(layout.words_at()) + part * comptime!(layout.units()) + down * side;
        let mut all = shared[at];
        for other in 1..side {
            let word = shared[at + other];
            if is_sum {
                all += word;
            } else {
                all = max(all, word);
            }
        }
        #[unroll]
        for i in 0..4usize {
            numbers[part * 4 + i] = all.extract(i);
        }
    }
}
