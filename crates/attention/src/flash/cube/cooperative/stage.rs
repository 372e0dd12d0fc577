//! The elements of a fragment, for lanes that have to know which ones they have.
//!
//! Each plane has a part of shared memory for one fragment. A lane has eight elements of a row.

use cubecl::ir::types::matrix::MatrixLayout;
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, VECTOR};
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

    /// Rounds the elements of each lane to a left operand.
    pub(super) fn write_left<E: Float>(&mut self, elements: &Array<f32>, operand: &Fragment) {
        let first = PLANE_POS as usize * HALVES;
        let vectors = comptime!(FRAGMENT / VECTOR);
        self.half[first + lane_row() * vectors + lane_column() / VECTOR] = pack::<E>(elements);
        sync_plane();
        operand.load(
            &self.half[first..first + HALVES],
            comptime!((4 * FRAGMENT / VECTOR) as u32),
            MatrixLayout::RowMajor,
        );
        sync_plane();
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
                    result[first + vector] = pack::<E>(&elements);
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
fn pack<E: Float>(elements: &Array<f32>) -> Words {
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

/// Whether a query attends to a key, by their row and column in a tile with a bitmap.
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
    let offset = call.bitmaps_offset as usize + (bitmap - 1) * comptime!(words * keys);
    let word = plan[offset + key * words + query / 32];
    (word >> (query as u32 % 32u32)) & 1u32 != 0u32
}

/// The log-sum-exp of a row from its maximum and sum. Any number will do for a row without keys.
#[cube]
pub(super) fn log_sum(row_max: f32, sum: f32) -> f32 {
    select(sum == 0.0f32, 0.0f32, row_max + sum.ln())
}
