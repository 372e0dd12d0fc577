//! Products of fragments, and sums of them.

use cubecl::ir::types::matrix::{MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, VECTOR};
use super::rows::Words;
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;

/// Which parts of a row operand and of a column operand are multiplied, in an order that depends on
/// the queries and keys only: so that a score has the same rounding wherever it is computed, and the
/// exponent of the largest one is zero.
fn product_parts(index: usize, row_axis: RowAxis, layout: CooperativeLayout) -> [usize; 2] {
    let parts = layout.ty.parts();
    let mut pairs = (0..parts).flat_map(|key| (0..parts - key).map(move |query| [query, key]));
    let [query, key] = pairs.nth(index).expect("an index of a product");
    match row_axis {
        RowAxis::Queries => [query, key],
        RowAxis::Keys => [key, query],
    }
}

/// `sums += left · rowsᵀ` for 16 rows of a column operand in shared memory, the first of which is at
/// `offset`.
///
/// Matrix instructions truncate their sums, relative to the sum. So the small products, of second and
/// third parts, have sums of their own.
#[cube]
pub(super) fn add_products<E: Float>(
    sums: &Sequence<Fragment>,
    operands: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] size: usize,
    #[comptime] row_axis: RowAxis,
    #[comptime] layout: CooperativeLayout,
) {
    let fragments = comptime!(layout.fragments);
    let parts = comptime!(layout.ty.parts());
    let rest_sums = zero_sums(comptime!(if parts > 1 { fragments } else { 0 }));
    #[unroll]
    for step in 0..comptime!(size / FRAGMENT) {
        let mut rights = Sequence::<Fragment>::new();
        #[unroll]
        for part in 0..parts {
            let start = comptime!(offset + (part * size + step * FRAGMENT) / VECTOR);
            let right = Fragment::new::<E>(MatrixIdent::B, E::from_int(0));
            right.load(
                &tiles[start..comptime!(layout.tiles_len())],
                comptime!(4 * layout.row_stride(size) as u32),
                MatrixLayout::ColMajor,
            );
            rights.push(right);
        }
        #[unroll]
        for fragment in 0..fragments {
            let first = comptime!((step * fragments + fragment) * parts);
            #[unroll]
            for index in 0..comptime!(parts * (parts + 1) / 2) {
                let [left_part, right_part] = comptime!(product_parts(index, row_axis, layout));
                let left = operands.index(comptime!(first + left_part));
                let right = rights.index(right_part);
                if comptime!(index == 0) {
                    sums.index(fragment).multiply_add(left, right);
                } else {
                    rest_sums.index(fragment).multiply_add(left, right);
                }
            }
        }
    }
    if comptime!(parts > 1) {
        #[unroll]
        for fragment in 0..fragments {
            sums.index(fragment).increase(rest_sums.index(fragment));
        }
    }
}

/// `sums += weights · tile` for a column operand in shared memory. Weights are in the order of the
/// steps, sums in that of the columns, and in both for each fragment of rows.
///
/// In `f32` the product of a tile has sums of its own, which are added with rounding: the truncated sums
/// of all tiles would have an error that grows with their number.
#[cube]
pub(super) fn add_weighted<E: Float>(
    sums: &Sequence<Fragment>,
    weights: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let fragments = comptime!(layout.fragments);
    if comptime!(layout.ty.is_split()) {
        #[unroll]
        for column in 0..comptime!(size / FRAGMENT) {
            let products = zero_sums(fragments);
            #[unroll]
            for step in 0..comptime!(layout.steps()) {
                add_step::<E>(
                    &products, 0usize, weights, tiles, offset, step, column, size, layout,
                );
            }
            #[unroll]
            for fragment in 0..fragments {
                let sum = sums.index(comptime!(column * fragments + fragment));
                sum.increase(products.index(fragment));
            }
        }
    } else {
        #[unroll]
        for step in 0..comptime!(layout.steps()) {
            #[unroll]
            for column in 0..comptime!(size / FRAGMENT) {
                let first = comptime!(column * fragments);
                add_step::<E>(
                    sums, first, weights, tiles, offset, step, column, size, layout,
                );
            }
        }
    }
}

/// Adds the product of a step of columns of the weights and a fragment of columns of the tile to the sums
/// of each fragment of rows, from `first_sum` on.
#[cube]
fn add_step<E: Float>(
    sums: &Sequence<Fragment>,
    #[comptime] first_sum: usize,
    weights: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] step: usize,
    #[comptime] column: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let fragments = comptime!(layout.fragments);
    let parts = comptime!(layout.ty.parts());
    let row = comptime!(offset + step * FRAGMENT * layout.row_stride(size));
    // The largest product last.
    #[unroll]
    for index in 0..parts {
        let right_part = comptime!(parts - 1 - index);
        let start = comptime!(row + (right_part * size + column * FRAGMENT) / VECTOR);
        let right = Fragment::new::<E>(MatrixIdent::B, E::from_int(0));
        right.load(
            &tiles[start..comptime!(layout.tiles_len())],
            comptime!(4 * layout.row_stride(size) as u32),
            MatrixLayout::RowMajor,
        );
        #[unroll]
        for fragment in 0..fragments {
            let first = comptime!((step * fragments + fragment) * parts);
            #[unroll]
            for left in 0..comptime!(parts - right_part) {
                let left_part = comptime!(parts - right_part - 1 - left);
                let weights = weights.index(comptime!(first + left_part));
                let sum = sums.index(comptime!(first_sum + fragment));
                sum.multiply_add(weights, &right);
            }
        }
    }
}

/// Accumulators that are zero.
#[cube]
pub(super) fn zero_sums(#[comptime] len: usize) -> Sequence<Fragment> {
    let mut sums = Sequence::<Fragment>::new();
    #[unroll]
    for _ in 0..len {
        sums.push(Fragment::new::<f32>(MatrixIdent::Accumulator, 0.0f32));
    }
    sums
}

/// Left operands to be overwritten, for `count` fragments of elements.
#[cube]
pub(super) fn new_operands<E: Float>(
    #[comptime] count: usize,
    #[comptime] layout: CooperativeLayout,
) -> Sequence<Fragment> {
    let mut operands = Sequence::<Fragment>::new();
    #[unroll]
    for _ in 0..comptime!(count * layout.ty.parts()) {
        operands.push(Fragment::new::<E>(MatrixIdent::A, E::from_int(0)));
    }
    operands
}
