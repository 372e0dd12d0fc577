//! Arguments of the kernels, masks of tiles, and results.

use cubecl::prelude::*;

use super::fragment::{Pair, row_sum};
use super::layout::{FRAGMENT, MmaLayout, VEC8, row_stride};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::call::Call;
use crate::flash::cube::finite::is_finite;

/// The inputs that all kernels share.
#[derive(CubeType, CubeLaunch)]
pub(in crate::flash::cube) struct MmaArgs<E: Float, N: Size> {
    pub(super) query: &'static [Vector<E, N>],
    pub(super) key: &'static [Vector<E, N>],
    pub(super) value: &'static [Vector<E, N>],
    pub(super) plan: &'static [u32],
    pub(super) call: Call,
    #[cube(comptime)]
    pub(super) layout: MmaLayout,
}

/// The row of a lane in a fragment. The lane's other row is 8 below.
#[cube]
pub(super) fn lane_row() -> usize {
    UNIT_POS_PLANE as usize / 4
}

/// The first of the two columns of a lane in a fragment.
#[cube]
pub(super) fn lane_column() -> usize {
    UNIT_POS_PLANE as usize % 4 * 2
}

/// Masks the scores of a tile whose rows are queries. `first_row` is the first row of the plane.
#[cube]
pub(super) fn mask_queries(
    scores: &mut Array<Pair<f32>>,
    bitmap: usize,
    first_row: usize,
    plan: &[u32],
    call: &Call,
    #[comptime] layout: MmaLayout,
) {
    let words = comptime!(layout.tile_m().div_ceil(32));
    let columns = comptime!(layout.columns);
    let fragments = comptime!(layout.fragments);
    let offset = call.bitmaps_offset as usize + (bitmap - 1) * comptime!(words * columns);
    let word = offset + first_row / 32;
    let shift = (first_row % 32 + lane_row()) as u32;
    #[unroll]
    for column in 0..comptime!(columns / 8) {
        #[unroll]
        for j in 0..2usize {
            let key = column * 8 + lane_column() + j;
            let bits = plan[word + key * words] >> shift;
            #[unroll]
            for fragment in 0..fragments {
                #[unroll]
                for half in 0..2usize {
                    let index = comptime!((fragment * columns / 8 + column) * 2 + half);
                    let bit = comptime!((fragment * FRAGMENT + half * 8) as u32);
                    let mut pair = scores[index];
                    let is_masked = (bits >> bit) & 1u32 == 0u32;
                    pair.insert(j, select(is_masked, MASKED_SCORE, pair.extract(j)));
                    scores[index] = pair;
                }
            }
        }
    }
}

/// Masks the scores of a tile whose rows are keys. `first_row` is the first row of the plane.
#[cube]
pub(super) fn mask_keys(
    scores: &mut Array<Pair<f32>>,
    bitmap: usize,
    first_row: usize,
    plan: &[u32],
    call: &Call,
    #[comptime] layout: MmaLayout,
) {
    let words = comptime!(layout.columns.div_ceil(32));
    let offset = call.bitmaps_offset as usize
        + (bitmap - 1) * comptime!(layout.columns.div_ceil(32) * layout.tile_m());
    #[unroll]
    for fragment in 0..comptime!(layout.fragments) {
        #[unroll]
        for half in 0..2usize {
            let key = first_row + lane_row() + comptime!(fragment * FRAGMENT + half * 8);
            #[unroll]
            for word in 0..words {
                let bits = plan[offset + key * words + word] >> lane_column() as u32;
                #[unroll]
                for part in 0..4usize {
                    let column = comptime!(word * 4 + part);
                    let index =
                        comptime!((fragment * layout.columns / 8 + word * 4 + part) * 2 + half);
                    if comptime!(column * 8 < layout.columns) {
                        let mut pair = scores[index];
                        #[unroll]
                        for j in 0..2usize {
                            let bit = comptime!((part * 8 + j) as u32);
                            let is_masked = (bits >> bit) & 1u32 == 0u32;
                            pair.insert(j, select(is_masked, MASKED_SCORE, pair.extract(j)));
                        }
                        scores[index] = pair;
                    }
                }
            }
        }
    }
}

/// Replaces non-finite elements of the rows of a tile in shared memory by zeros, and notes one of
/// them for each row, or zero. There must be barriers before and after.
#[cube]
pub(super) fn remove_non_finite<E: Float, N: Size>(
    tile: &mut Shared<[Vector<E, N>]>,
    first_row: usize,
    removed: &mut Shared<[f32]>,
    #[comptime] rows: usize,
    #[comptime] size: usize,
) {
    let unit = UNIT_POS as usize;
    if unit < rows {
        let mut found = 0.0f32;
        for vec8 in 0..comptime!(size / VEC8) {
            let index = (first_row + unit) * comptime!(row_stride(size)) + vec8;
            let mut elements = tile[index];
            #[unroll]
            for i in 0..VEC8 {
                let element = f32::cast_from(elements.extract(i));
                if !is_finite(element) {
                    found = element;
                    elements.insert(i, E::from_int(0));
                }
            }
            tile[index] = elements;
        }
        removed[unit] = found;
    }
}

/// Makes the sums of rows infinite or NaN that have a non-zero weight for a row of the tile from
/// which [`remove_non_finite`] removed elements.
#[cube]
pub(super) fn add_non_finite(
    weights: &Array<Pair<f32>>,
    removed: &Shared<[f32]>,
    sums: &mut Array<Pair<f32>>,
    #[comptime] fragments: usize,
    #[comptime] columns: usize,
    #[comptime] size: usize,
) {
    #[unroll]
    for fragment in 0..fragments {
        #[unroll]
        for half in 0..2usize {
            let mut added = 0.0f32;
            #[unroll]
            for column in 0..comptime!(columns / 8) {
                let pair = weights[comptime!((fragment * columns / 8 + column) * 2 + half)];
                #[unroll]
                for j in 0..2usize {
                    let element = removed[column * 8 + lane_column() + j];
                    if !is_finite(element) && pair.extract(j) != 0.0f32 {
                        added += pair.extract(j) * element;
                    }
                }
            }
            let added = row_sum(added);
            #[unroll]
            for column in 0..comptime!(size / 8) {
                let index = comptime!((fragment * size / 8 + column) * 2 + half);
                sums[index] += Pair::<f32>::new(added);
            }
        }
    }
}

/// Writes the sums of the rows of a plane, multiplied by a factor for each row, to a contiguous
/// result whose head starts at row `head_row`.
#[cube]
pub(super) fn store_rows<E: Float>(
    result: &mut [Pair<E>],
    head_row: usize,
    first_row: usize,
    end_row: usize,
    sums: &Array<Pair<f32>>,
    factors: &Array<f32>,
    #[comptime] fragments: usize,
    #[comptime] size: usize,
) {
    #[unroll]
    for fragment in 0..fragments {
        #[unroll]
        for half in 0..2usize {
            let row = first_row + lane_row() + comptime!(fragment * FRAGMENT + half * 8);
            if row < end_row {
                let factor = Pair::<f32>::new(factors[comptime!(fragment * 2 + half)]);
                #[unroll]
                for column in 0..comptime!(size / 8) {
                    let index = comptime!((fragment * size / 8 + column) * 2 + half);
                    let offset = (head_row + row) * comptime!(size / 2) + lane_column() / 2;
                    result[offset + column * 4] = Pair::<E>::cast_from(sums[index] * factor);
                }
            }
        }
    }
}
