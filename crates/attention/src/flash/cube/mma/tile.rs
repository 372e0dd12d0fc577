//! Arguments of the kernels, masks of tiles, and results.

use std::f32::consts::LOG2_E;

use cubecl::prelude::*;

use super::fragment::{Pair, exp2, row_sum};
use super::layout::{FRAGMENT, MmaLayout};
use super::shared::{commit_copies, copy_rows, shared_index, wait_for_copies};
use crate::flash::call::MASKED_SCORE;
use crate::flash::cube::call::{Call, Head};
use crate::flash::cube::cursor::{TileCursor, advance, first_tile};
use crate::flash::cube::finite::is_finite;
use crate::flash::cube::memory::Matrix;

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

/// Shared memory for two stages of a tile with rows of `size`, or for the rows of a cube.
#[cube]
pub(super) fn new_tiles<E: Float, N: Size>(
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> Shared<[Vector<E, N>]> {
    Shared::<[Vector<E, N>]>::new_aligned_slice(
        comptime!(layout.shared_rows() * layout.row_stride(size)),
        comptime!(layout.alignment()),
    )
}

/// Starts the copy of the two column operands of a tile, of width `d_head` and `d_value`, to a
/// stage.
#[cube]
pub(super) fn copy_columns<E: Float, N: Size>(
    first: &Matrix<'_, E, N>,
    second: &Matrix<'_, E, N>,
    first_tiles: &mut Shared<[Vector<E, N>]>,
    second_tiles: &mut Shared<[Vector<E, N>]>,
    stage: usize,
    #[comptime] layout: MmaLayout,
) {
    let columns = comptime!(layout.columns);
    let first_row = stage * columns;
    let d_head = comptime!(layout.d_head);
    let d_value = comptime!(layout.d_value);
    let rows = comptime!(layout.shared_rows());
    copy_rows::<E, N>(first, first_tiles, first_row, columns, rows, d_head, layout);
    copy_rows::<E, N>(
        second,
        second_tiles,
        first_row,
        columns,
        rows,
        d_value,
        layout,
    );
    commit_copies();
}

/// The key tiles of a query tile, of which the next is copied while one is used.
#[derive(CubeType)]
pub(super) struct KeyTiles {
    pub(super) has_next: bool,
    head: Head,
    next: KeyTile,
    cursor: TileCursor,
}

/// A key tile in shared memory.
#[derive(CubeType, Clone, Copy)]
pub(super) struct KeyTile {
    stage: usize,
    pub(super) bitmap: usize,
}

#[cube]
impl KeyTile {
    /// The row of its stage in shared memory.
    pub(super) fn first_row(&self, #[comptime] layout: MmaLayout) -> usize {
        self.stage * comptime!(layout.columns)
    }
}

/// Starts the copy of the first key tile of a row of the plan.
#[cube]
pub(super) fn first_key_tile<E: Float, N: Size>(
    args: &MmaArgs<E, N>,
    head: Head,
    plan_row: usize,
    key_tiles: &mut Shared<[Vector<E, N>]>,
    value_tiles: &mut Shared<[Vector<E, N>]>,
) -> KeyTiles {
    let call = &args.call;
    let mut cursor = first_tile(head.example, plan_row, head.head, 1usize, args.plan, call);
    let mut next = KeyTile {
        stage: 0usize,
        bitmap: 0usize,
    };
    let has_next = cursor.has_tile();
    if has_next {
        next.bitmap = copy_next::<E, N>(args, &head, key_tiles, value_tiles, &mut cursor, 0usize);
    }
    KeyTiles {
        has_next,
        head,
        next,
        cursor,
    }
}

/// Waits for the next key tile, and starts the copy of the one after it.
#[cube]
pub(super) fn next_key_tile<E: Float, N: Size>(
    tiles: &mut KeyTiles,
    args: &MmaArgs<E, N>,
    key_tiles: &mut Shared<[Vector<E, N>]>,
    value_tiles: &mut Shared<[Vector<E, N>]>,
) -> KeyTile {
    // The other stage has been read by all planes.
    wait_for_copies(0usize, comptime!(args.layout));
    let mut tile = KeyTile {
        stage: 0usize,
        bitmap: 0usize,
    };
    // Without an assignment these would be references to the fields of `next`.
    tile.stage = tiles.next.stage;
    tile.bitmap = tiles.next.bitmap;
    tiles.next.stage = 1usize - tile.stage;
    tiles.has_next = tiles.cursor.has_tile();
    if tiles.has_next {
        tiles.next.bitmap = copy_next::<E, N>(
            args,
            &tiles.head,
            key_tiles,
            value_tiles,
            &mut tiles.cursor,
            tiles.next.stage,
        );
    }
    tile
}

/// Starts the copy of the keys and values of the tile at the cursor to a stage, and moves the cursor to
/// the next tile. Returns the bitmap of the copied tile.
#[cube]
fn copy_next<E: Float, N: Size>(
    args: &MmaArgs<E, N>,
    head: &Head,
    key_tiles: &mut Shared<[Vector<E, N>]>,
    value_tiles: &mut Shared<[Vector<E, N>]>,
    cursor: &mut TileCursor,
    stage: usize,
) -> usize {
    let layout = comptime!(args.layout);
    let call = &args.call;
    let kv_head = head.head / call.group as usize;
    let key = cursor.tile as usize * comptime!(layout.columns);
    let keys = call
        .key
        .matrix(args.key, head.example, kv_head, call.seq_k, call.d_head);
    let values = call
        .value
        .matrix(args.value, head.example, kv_head, call.seq_k, call.d_value);
    copy_columns::<E, N>(
        &keys.at(key),
        &values.at(key),
        key_tiles,
        value_tiles,
        stage,
        layout,
    );
    advance(cursor, args.plan, call)
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

/// Replaces non-finite elements of the rows of a tile in shared memory by zeros, and stores one of
/// them for each row in `removed`, or zero. There must be barriers before and after.
#[cube]
pub(super) fn remove_non_finite<E: Float, N: Size>(
    tile: &mut Shared<[Vector<E, N>]>,
    first_row: usize,
    removed: &mut Shared<[f32]>,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) {
    let unit = UNIT_POS as usize;
    let units = comptime!(layout.units());
    if unit < comptime!(layout.columns) {
        removed[unit] = 0.0f32;
    }
    sync_cube();
    for step in 0..comptime!((layout.columns * size).div_ceil(layout.units())) {
        let position = unit + step * units;
        let row = position / size;
        if row < comptime!(layout.columns) {
            let column = position % size;
            let vec = comptime!(layout.ty.vec());
            let index = shared_index(
                first_row + row,
                column / vec,
                comptime!(layout.shared_rows()),
                size,
                layout,
            ) + column % vec;
            let element = f32::cast_from(tile[index].extract(0usize));
            if !is_finite(element) {
                // Any of several will do.
                removed[row] = element;
                tile[index] = Vector::new(E::from_int(0));
            }
        }
    }
}

/// The weight of a score, from the statistics of its row.
#[cube]
pub(super) fn weight(
    score: f32,
    stats: &RowStats,
    scale: f32,
    #[comptime] layout: MmaLayout,
) -> f32 {
    if comptime!(layout.is_exact()) {
        let exponent = (score * scale - stats.offset) * LOG2_E;
        // A recomputed score may be rounded differently. This comparison preserves NaN.
        let exponent = select(exponent > 0.0f32, 0.0f32, exponent);
        exp2(exponent) * stats.inverse_sum
    } else {
        exp2(fma(score, scale * LOG2_E, -stats.offset))
    }
}

/// What the backward pass needs of the softmax of a row.
#[derive(CubeType, Clone, Copy)]
pub(super) struct RowStats {
    /// The maximum, if the weights are [exact](MmaLayout::is_exact); else the log-sum-exp in base 2.
    pub(super) offset: f32,
    pub(super) inverse_sum: f32,
}

/// The log-sum-exp in base 2 of a row without keys: larger than all scores.
const NO_KEYS: f32 = 3e38;

/// From the maximum and the sum of a row, or of a row without keys.
#[cube]
pub(super) fn row_stats(
    row_max: f32,
    sum: f32,
    has_keys: bool,
    #[comptime] layout: MmaLayout,
) -> RowStats {
    let has_keys = has_keys && sum != 0.0f32;
    let mut offset = row_max;
    if comptime!(!layout.is_exact()) {
        offset = select(has_keys, (row_max + sum.ln()) * LOG2_E, NO_KEYS);
    }
    RowStats {
        offset,
        inverse_sum: select(has_keys, 1.0f32 / sum, 0.0f32),
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
