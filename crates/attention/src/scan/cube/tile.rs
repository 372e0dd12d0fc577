//! Products of 64 x 64 elements, whose operands are in shared memory 16 elements deep at a time.
//!
//! Vec4s of an operand are along the depth of the product, or along its side: the rows of the left
//! and the columns of the right operand. So no operand is transposed when it is loaded. A unit
//! multiplies all its rows by all its columns, so each load is used several times.

use cubecl::prelude::*;

use super::call::{Call, Head, Role, ScanArgs, load_operand, row_power};
use crate::cube::rows::{Vec4, is_finite};

/// Positions in a chunk, and the side of a product.
pub(super) const CHUNK: usize = 64;

/// Vec4s of a side.
pub(super) const SIDE_VEC4S: usize = CHUNK / 4;

/// The depth that is in shared memory at a time, in elements and in vec4.
pub(super) const DEPTH: usize = 16;
pub(super) const DEPTH_VEC4S: usize = DEPTH / 4;

/// How the units of a cube divide a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Tile {
    /// Units per side of the square cube.
    pub(super) cube_side: usize,
}

impl Tile {
    pub(super) fn units(self) -> usize {
        self.cube_side * self.cube_side
    }

    /// Rows and columns per unit.
    pub(super) fn unit_side(self) -> usize {
        CHUNK / self.cube_side
    }

    pub(super) fn unit_vec4s(self) -> usize {
        self.unit_side() / 4
    }

    pub(super) fn unit_elements(self) -> usize {
        self.unit_side() * self.unit_side()
    }
}

/// The direction of an operand's vec4s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Along {
    Depth,
    Side,
}

/// An operand in shared memory, in vec4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Slice {
    offset: usize,
    stride: usize,
    along: Along,
    /// Whether the rows of a unit have a stride of `cube_side`: adjacent units then read adjacent
    /// rows, which are in different banks.
    is_interleaved: bool,
}

impl Slice {
    /// The stride of rows.
    pub(super) fn stride(self) -> usize {
        self.stride
    }
}

/// Rows of vec4s along the depth are padded, so that adjacent ones are in different banks.
const DEPTH_STRIDE: usize = DEPTH_VEC4S + 1;
const SLICE_VEC4S: usize = CHUNK * DEPTH_STRIDE;
const SCORES_STRIDE: usize = SIDE_VEC4S + 1;

/// Operand number `index` of those that are in shared memory at the same time.
pub(super) const fn slice(index: usize, along: Along) -> Slice {
    Slice {
        offset: index * SLICE_VEC4S,
        stride: match along {
            Along::Depth => DEPTH_STRIDE,
            Along::Side => SIDE_VEC4S,
        },
        along,
        is_interleaved: true,
    }
}

/// The scores of a chunk, which replace all slices.
pub(super) const SCORES: Slice = Slice {
    offset: 0,
    stride: SCORES_STRIDE,
    along: Along::Depth,
    is_interleaved: false,
};

/// The right operand that the scores are multiplied by.
pub(super) const BESIDE_SCORES: Slice = Slice {
    offset: CHUNK * SCORES_STRIDE,
    ..slice(0, Along::Side)
};

/// The offset of the values for reductions over the units of a row, which overlap
/// [`BESIDE_SCORES`].
pub(super) const REDUCE_OFFSET: usize = BESIDE_SCORES.offset;

/// The size of the shared memory of the largest kernel, in vec4.
pub(super) const MEMORY_VEC4S: usize = BESIDE_SCORES.offset + DEPTH * SIDE_VEC4S;

/// Also the flags of [`stage_finite`].
pub(super) const MEMORY_BYTES: usize = 16 * MEMORY_VEC4S + 4 * FLAGS;

/// A flag for each row, and one for all.
pub(super) const FLAGS: usize = CHUNK + 1;

// Every adapter has 32 KiB; operands, and the vec4s that all rows of 64 elements reduce, fit.
const _: () = assert!(MEMORY_BYTES <= 32 << 10);
const _: () = assert!(3 * SLICE_VEC4S <= MEMORY_VEC4S);
const _: () = assert!(SIDE_VEC4S * SIDE_VEC4S <= MEMORY_VEC4S - REDUCE_OFFSET);

/// The row and column of a unit in its cube.
#[cube]
pub(super) fn unit_position(#[comptime] tile: Tile) -> (usize, usize) {
    let unit = UNIT_POS as usize;
    let cube_side = comptime!(tile.cube_side);
    (unit / cube_side, unit % cube_side)
}

/// The row (or column) of a product with number `i` of the unit in this row (or column) of the cube.
/// Four adjacent ones belong to the same unit.
#[cube]
pub(super) fn side_index(unit: usize, #[comptime] i: usize, #[comptime] tile: Tile) -> usize {
    (unit + comptime!(i / 4 * tile.cube_side)) * 4 + comptime!(i % 4)
}

/// The row that a slot of a slice along the depth has.
#[cube]
fn row_at(slot: usize, #[comptime] tile: Tile) -> usize {
    let cube_side = comptime!(tile.cube_side);
    let i = slot / cube_side;
    (slot % cube_side + i / 4 * cube_side) * 4 + i % 4
}

#[cube]
pub(super) fn zeros(#[comptime] len: usize) -> Array<f32> {
    let mut values = Array::<f32>::new(len);
    set_zero(&mut values, len);
    values
}

#[cube]
pub(super) fn set_zero(values: &mut Array<f32>, #[comptime] len: usize) {
    #[unroll]
    for i in 0..len {
        values[i] = 0.0f32;
    }
}

/// Loads rows of a chunk from position `first` on: their vec4s from `vec4` on are along the depth.
#[cube]
pub(super) fn stage_depth<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    first: usize,
    vec4: usize,
    memory: &mut Shared<[Vec4]>,
    #[comptime] role: Role,
    #[comptime] slice: Slice,
) {
    let tile = comptime!(args.kind.tile);
    for step in 0..comptime!(CHUNK * DEPTH_VEC4S / tile.units()) {
        let index = UNIT_POS as usize + step * comptime!(tile.units());
        let slot = index / DEPTH_VEC4S;
        let depth = index % DEPTH_VEC4S;
        let position = first + row_at(slot, tile);
        memory[comptime!(slice.offset) + slot * comptime!(slice.stride) + depth] =
            load_operand::<E, N, M>(args, head, position, vec4 + depth, role);
    }
}

/// Loads 16 x 64 elements of the product of a left operand and a state, which begins at vec4
/// `state`. They begin at part `part` of the depth, and at vec4 `block_vec4` of the side.
#[cube]
pub(super) fn stage_state(
    states: &[Vec4],
    state: usize,
    call: &Call,
    part: usize,
    block_vec4: usize,
    memory: &mut Shared<[Vec4]>,
    #[comptime] slice: Slice,
    #[comptime] tile: Tile,
) {
    let rows = call.feature_vec4s() * 4;
    let columns = call.value_vec4s();
    for step in 0..comptime!(DEPTH * SIDE_VEC4S / tile.units()) {
        let index = UNIT_POS as usize + step * comptime!(tile.units());
        let mut slot = index / SIDE_VEC4S;
        let mut vec4 = index % SIDE_VEC4S;
        let mut row = part * DEPTH + slot;
        let mut column = block_vec4 + vec4;
        if comptime!(slice.along == Along::Depth) {
            slot = index / DEPTH_VEC4S;
            vec4 = index % DEPTH_VEC4S;
            row = block_vec4 * 4 + row_at(slot, tile);
            column = part * DEPTH_VEC4S + vec4;
        }
        let mut elements = Vec4::new(0.0f32);
        if row < rows && column < columns {
            elements = states[state + row * columns + column];
        }
        memory[comptime!(slice.offset) + slot * comptime!(slice.stride) + vec4] = elements;
    }
}

/// A vec4 of [`stage_side`]: its row, and its number in the row.
#[cube]
fn side_vec4(step: usize, #[comptime] tile: Tile) -> (usize, usize) {
    let index = UNIT_POS as usize + step * comptime!(tile.units());
    (index / SIDE_VEC4S, index % SIDE_VEC4S)
}

/// Loads rows of a chunk from row `row_in_chunk` on, which are along the depth: their vec4s from
/// `vec4` on are along the side. With a decay, rows are multiplied by [`row_power`].
#[cube]
pub(super) fn stage_side<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    first: usize,
    row_in_chunk: usize,
    vec4: usize,
    memory: &mut Shared<[Vec4]>,
    #[comptime] role: Role,
    #[comptime] slice: Slice,
    #[comptime] is_decayed: bool,
) {
    let tile = comptime!(args.kind.tile);
    for step in 0..comptime!(DEPTH * SIDE_VEC4S / tile.units()) {
        let (row, column) = side_vec4(step, tile);
        let in_chunk = row_in_chunk + row;
        let mut loaded = load_operand::<E, N, M>(args, head, first + in_chunk, vec4 + column, role);
        if comptime!(is_decayed) {
            loaded *= Vec4::new(row_power::<E, N, M>(
                args,
                head,
                in_chunk,
                comptime!(role.has_queries()),
            ));
        }
        memory[comptime!(slice.offset) + row * comptime!(slice.stride) + column] = loaded;
    }
}

/// [`stage_side`] that replaces non-finite elements by zeros, and sets the flags of their rows.
#[cube]
pub(super) fn stage_finite<E: Float, N: Size, M: Numeric>(
    args: &ScanArgs<E, N, M>,
    head: &Head,
    first: usize,
    row_in_chunk: usize,
    vec4: usize,
    memory: &mut Shared<[Vec4]>,
    flags: &mut Shared<[u32]>,
    #[comptime] role: Role,
) {
    let tile = comptime!(args.kind.tile);
    let slice = comptime!(BESIDE_SCORES);
    for step in 0..comptime!(DEPTH * SIDE_VEC4S / tile.units()) {
        let (row, column) = side_vec4(step, tile);
        let in_chunk = row_in_chunk + row;
        let mut loaded = load_operand::<E, N, M>(args, head, first + in_chunk, vec4 + column, role);
        #[unroll]
        for i in 0..4usize {
            if !is_finite(loaded.extract(i)) {
                loaded.insert(i, 0.0f32);
                flags[in_chunk] = 1u32;
                flags[CHUNK] = 1u32;
            }
        }
        memory[comptime!(slice.offset) + row * comptime!(slice.stride) + column] = loaded;
    }
}

/// Loads a unit's vec4s of an operand, four elements deep.
#[cube]
fn load_fragment(
    memory: &mut Shared<[Vec4]>,
    unit: usize,
    depth: usize,
    fragment: &mut Array<Vec4>,
    #[comptime] slice: Slice,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for i in 0..comptime!(tile.unit_side()) {
        if comptime!(slice.along == Along::Side) {
            let row = depth * 4 + comptime!(i / tile.unit_vec4s());
            let column = unit + comptime!(i % tile.unit_vec4s() * tile.cube_side);
            fragment[i] = memory[comptime!(slice.offset) + row * comptime!(slice.stride) + column];
        } else if comptime!(slice.is_interleaved) {
            let row = unit + comptime!(i * tile.cube_side);
            fragment[i] = memory[comptime!(slice.offset) + row * comptime!(slice.stride) + depth];
        } else {
            let row = side_index(unit, i, tile);
            fragment[i] = memory[comptime!(slice.offset) + row * comptime!(slice.stride) + depth];
        }
    }
}

/// Element `i` of a fragment at depth `k`.
#[cube]
fn element(
    fragment: &mut Array<Vec4>,
    #[comptime] i: usize,
    #[comptime] k: usize,
    #[comptime] along: Along,
    #[comptime] tile: Tile,
) -> f32 {
    let [index, lane] = comptime!(match along {
        Along::Depth => [i, k],
        Along::Side => [k * tile.unit_vec4s() + i / 4, i % 4],
    });
    fragment[index].extract(lane)
}

/// `products += left · right` for a slice. The left operand begins at vec4 `left_depth` of its
/// depth.
#[cube]
pub(super) fn multiply(
    memory: &mut Shared<[Vec4]>,
    left_depth: usize,
    products: &mut Array<f32>,
    #[comptime] left: Slice,
    #[comptime] right: Slice,
    #[comptime] tile: Tile,
) {
    let side = comptime!(tile.unit_side());
    let (unit_row, unit_column) = unit_position(tile);
    for depth in 0..DEPTH_VEC4S {
        let mut rows = Array::<Vec4>::new(side);
        let mut columns = Array::<Vec4>::new(side);
        load_fragment(memory, unit_row, left_depth + depth, &mut rows, left, tile);
        load_fragment(memory, unit_column, depth, &mut columns, right, tile);
        #[unroll]
        for k in 0..4usize {
            #[unroll]
            for i in 0..side {
                let row = element(&mut rows, i, k, comptime!(left.along), tile);
                #[unroll]
                for j in 0..side {
                    let column = element(&mut columns, j, k, comptime!(right.along), tile);
                    products[i * side + j] = fma(row, column, products[i * side + j]);
                }
            }
        }
    }
}

/// Four adjacent elements of a row of a unit.
#[cube]
pub(super) fn row_vec4(
    products: &mut Array<f32>,
    #[comptime] row: usize,
    #[comptime] vec4: usize,
    #[comptime] tile: Tile,
) -> Vec4 {
    let mut elements = Vec4::new(0.0f32);
    #[unroll]
    for i in 0..4usize {
        elements.insert(
            i,
            products[comptime!(row * tile.unit_side() + vec4 * 4 + i)],
        );
    }
    elements
}

/// Stores each unit's scores as the left operand [`SCORES`].
#[cube]
pub(super) fn store_scores(
    scores: &mut Array<f32>,
    memory: &mut Shared<[Vec4]>,
    #[comptime] tile: Tile,
) {
    let (unit_row, unit_column) = unit_position(tile);
    #[unroll]
    for i in 0..comptime!(tile.unit_side()) {
        let row = side_index(unit_row, i, tile);
        #[unroll]
        for c in 0..comptime!(tile.unit_vec4s()) {
            let column = unit_column + comptime!(c * tile.cube_side);
            memory[row * SCORES_STRIDE + column] = row_vec4(scores, i, c, tile);
        }
    }
}

/// Sums vec4s over the units of a row of the cube. Each unit has `unit_vec4s` of them; all units of
/// the row get the sums.
#[cube]
pub(super) fn sum_over_row(
    values: &mut Array<Vec4>,
    memory: &mut Shared<[Vec4]>,
    #[comptime] tile: Tile,
) {
    let cube_side = comptime!(tile.cube_side);
    let (unit_row, unit_column) = unit_position(tile);
    // The memory may still be read as an operand.
    sync_cube();
    #[unroll]
    for i in 0..comptime!(tile.unit_vec4s()) {
        let offset = REDUCE_OFFSET + (unit_row + comptime!(i * tile.cube_side)) * cube_side;
        memory[offset + unit_column] = values[i];
    }
    sync_cube();
    #[unroll]
    for i in 0..comptime!(tile.unit_vec4s()) {
        let offset = REDUCE_OFFSET + (unit_row + comptime!(i * tile.cube_side)) * cube_side;
        let mut sum = Vec4::new(0.0f32);
        for unit in 0..cube_side {
            sum += memory[offset + unit];
        }
        values[i] = sum;
    }
}
