//! The elements of a fragment, for lanes that have to know which ones they have.
//!
//! Each plane has a part of shared memory for one fragment. A lane has eight elements of a row.

use cubecl::ir::types::matrix::MatrixLayout;
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, CooperativeType, VECTOR};
use super::parts;
use super::rows::Words;
use crate::flash::cube::call::Call;
use crate::flash::cube::device_plan::RowAxis;
use crate::flash::cube::layout::FRAGMENT;

/// Elements of a fragment.
const ELEMENTS: usize = FRAGMENT * FRAGMENT;

/// Vectors of a fragment in half precision.
const HALVES: usize = ELEMENTS / VECTOR;

#[derive(CubeType)]
pub(super) struct Stage {
    full: Shared<[f32]>,
    half: Shared<[Words]>,
}

#[cube]
impl Stage {
    pub(super) fn new(#[comptime] planes: usize) -> Stage {
        Stage {
            full: Shared::<[f32]>::new_aligned_slice(comptime!(planes * ELEMENTS), 16usize),
            half: Shared::<[Words]>::new_aligned_slice(comptime!(planes * HALVES), 16usize),
        }
    }

    /// Reads a lane's elements of an accumulator.
    pub(super) fn read(&mut self, sums: &Fragment, elements: &mut Array<f32>) {
        let first = PLANE_POS as usize * ELEMENTS;
        sums.store(
            &mut self.full[first..first + ELEMENTS],
            comptime!(FRAGMENT as u32),
            MatrixLayout::ColMajor,
        );
        sync_plane();
        #[unroll]
        for i in 0..VECTOR {
            elements[i] = self.full[first + (lane_column() + i) * FRAGMENT + lane_row()];
        }
        sync_plane();
    }

    /// Reads an element of a lane's row of an accumulator whose rows have equal elements.
    pub(super) fn read_row(&mut self, sums: &Fragment) -> f32 {
        let first = PLANE_POS as usize * ELEMENTS;
        sums.store(
            &mut self.full[first..first + ELEMENTS],
            comptime!(FRAGMENT as u32),
            MatrixLayout::ColMajor,
        );
        sync_plane();
        let element = self.full[first + lane_row()];
        sync_plane();
        element
    }

    /// Writes the elements of each lane to an accumulator.
    pub(super) fn write(&mut self, elements: &Array<f32>, sums: &Fragment) {
        let first = PLANE_POS as usize * ELEMENTS;
        #[unroll]
        for i in 0..VECTOR {
            self.full[first + (lane_column() + i) * FRAGMENT + lane_row()] = elements[i];
        }
        sync_plane();
        sums.load(
            &self.full[first..first + ELEMENTS],
            comptime!(FRAGMENT as u32),
            MatrixLayout::ColMajor,
        );
        sync_plane();
    }

    /// Writes one value for each row to an accumulator.
    pub(super) fn write_row(&mut self, value: f32, sums: &Fragment) {
        let mut elements = Array::<f32>::new(VECTOR);
        #[unroll]
        for i in 0..VECTOR {
            elements[i] = value;
        }
        self.write(&elements, sums);
    }

    /// Rounds the elements of each lane to the parts of a left operand, the first of which is at an index
    /// of the operands. What remains of the elements is not used.
    pub(super) fn write_left<E: Float>(
        &mut self,
        elements: &mut Array<f32>,
        operands: &Sequence<Fragment>,
        #[comptime] index: usize,
        #[comptime] ty: CooperativeType,
    ) {
        let first = PLANE_POS as usize * HALVES;
        let vectors = comptime!(FRAGMENT / VECTOR);
        let mut are_ordinary = true;
        if comptime!(ty.is_split()) {
            are_ordinary = parts::are_ordinary(elements);
        }
        #[unroll]
        for part in 0..comptime!(ty.parts()) {
            let position = first + lane_row() * vectors + lane_column() / VECTOR;
            let words = if comptime!(ty.is_split()) {
                parts::take_part(elements, are_ordinary)
            } else {
                pack::<E>(elements)
            };
            self.half[position] = words;
            sync_plane();
            operands.index(comptime!(index * ty.parts() + part)).load(
                &self.half[first..first + HALVES],
                comptime!((4 * FRAGMENT / VECTOR) as u32),
                MatrixLayout::RowMajor,
            );
            sync_plane();
        }
    }

    /// Writes the sums of the rows of a plane to a contiguous result whose head starts at row
    /// `head_row`: for each column of fragments, for each fragment of rows. Each row is multiplied by
    /// a factor, and another value is added.
    pub(super) fn store_rows<E: Float>(
        &mut self,
        result: &mut [Words],
        sums: &Sequence<Fragment>,
        factors: &Array<f32>,
        added: &Array<f32>,
        head_row: usize,
        first_row: usize,
        end_row: usize,
        #[comptime] size: usize,
        #[comptime] layout: CooperativeLayout,
    ) {
        let fragments = comptime!(layout.fragments);
        let mut elements = Array::<f32>::new(VECTOR);
        #[unroll]
        for fragment in 0..fragments {
            let row = first_row + comptime!(fragment * FRAGMENT) + lane_row();
            #[unroll]
            for column in 0..comptime!(size / FRAGMENT) {
                self.read(
                    sums.index(comptime!(column * fragments + fragment)),
                    &mut elements,
                );
                if row < end_row {
                    #[unroll]
                    for i in 0..VECTOR {
                        elements[i] = elements[i] * factors[fragment] + added[fragment];
                    }
                    let first = (head_row + row) * comptime!(size / VECTOR);
                    let vector = comptime!(column * FRAGMENT / VECTOR) + lane_column() / VECTOR;
                    if comptime!(layout.ty.is_split()) {
                        #[unroll]
                        for half in 0..2usize {
                            let mut words = Words::new(0u32);
                            #[unroll]
                            for i in 0..4usize {
                                let element = elements[comptime!(half * 4 + i)];
                                words.insert(i, u32::reinterpret(element));
                            }
                            result[(first + vector) * 2 + half] = words;
                        }
                    } else {
                        result[first + vector] = pack::<E>(&mut elements);
                    }
                }
            }
        }
    }
}

/// The row of a lane in a fragment.
#[cube]
pub(super) fn lane_row() -> usize {
    UNIT_POS_PLANE as usize % FRAGMENT
}

/// The first of the eight columns of a lane in a fragment.
#[cube]
pub(super) fn lane_column() -> usize {
    UNIT_POS_PLANE as usize / FRAGMENT * VECTOR
}

#[cube]
fn pack<E: Float>(elements: &mut Array<f32>) -> Words {
    let mut words = Words::new(0u32);
    #[unroll]
    for i in 0..4usize {
        let mut pair = Vector::<E, Const<2>>::new(E::from_int(0));
        pair.insert(0usize, E::cast_from(elements[comptime!(2 * i)]));
        pair.insert(1usize, E::cast_from(elements[comptime!(2 * i + 1)]));
        words.insert(i, u32::reinterpret(pair));
    }
    words
}

/// The sum of a value over the two lanes of a row.
#[cube]
pub(super) fn row_sum(value: f32) -> f32 {
    value + plane_shuffle_xor(value, 16u32)
}

/// The maximum of a value over the two lanes of a row.
#[cube]
pub(super) fn row_max(value: f32) -> f32 {
    max(value, plane_shuffle_xor(value, 16u32))
}

/// Whether a query attends to a key, by their row and column in a tile, which has a bitmap if it is masked.
#[cube]
pub(super) fn is_visible(
    plan: &[u32],
    call: &Call,
    bitmap: usize,
    row: usize,
    column: usize,
    #[comptime] row_axis: RowAxis,
    #[comptime] layout: CooperativeLayout,
) -> bool {
    let mut query = row;
    let mut key = column;
    if comptime!(row_axis == RowAxis::Keys) {
        query = column;
        key = row;
    }
    let [queries, keys] = comptime!(row_axis.tile(layout.tile()));
    let words = comptime!(queries.div_ceil(32));
    let mut is_visible = true;
    if bitmap > 0 {
        let offset = call.bitmaps_offset as usize + (bitmap - 1) * comptime!(words * keys);
        let word = plan[offset + key * words + query / 32];
        is_visible = (word >> (query as u32 % 32u32)) & 1u32 != 0u32;
    }
    is_visible
}

/// What the backward pass adds to the scores of a query and to the products with its context gradient, and
/// the factor of its weights.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Terms {
    pub(super) score: f32,
    pub(super) product: f32,
    pub(super) factor: f32,
}

/// Minus the maximum of a row without keys: smaller than all scores.
const NO_KEYS: f32 = -3e38;

/// From the maximum and the sum of a row, and its delta.
///
/// In half precision the terms of scores are those of dot products, with which accumulators start. In
/// `f32` they are added to scaled scores: an accumulator would truncate the sums.
#[cube]
pub(super) fn row_terms(
    row_max: f32,
    sum: f32,
    delta: f32,
    scale: f32,
    #[comptime] layout: CooperativeLayout,
) -> Terms {
    let has_keys = sum != 0.0f32;
    let mut score = select(has_keys, -row_max, NO_KEYS);
    let mut factor = select(has_keys, 1.0f32 / sum, 0.0f32);
    if comptime!(!layout.ty.is_split()) {
        // Any number will do for a row without keys.
        score = select(has_keys, -(row_max + sum.ln()) / scale, 0.0f32);
        factor = 1.0f32;
    }
    Terms {
        score,
        product: -delta,
        factor,
    }
}

/// The weight of a dot product, to which an accumulator has added the term in half precision.
#[cube]
pub(super) fn weight(
    product: f32,
    terms: &Terms,
    scale: f32,
    #[comptime] layout: CooperativeLayout,
) -> f32 {
    if comptime!(layout.ty.is_split()) {
        (product * scale + terms.score).exp() * terms.factor
    } else {
        (product * scale).exp()
    }
}

/// A product with a context gradient, to which an accumulator has added the term in half precision.
#[cube]
pub(super) fn with_term(product: f32, terms: &Terms, #[comptime] layout: CooperativeLayout) -> f32 {
    if comptime!(layout.ty.is_split()) {
        product + terms.product
    } else {
        product
    }
}
