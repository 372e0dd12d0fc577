//! The shared memory of a cube.

use cubecl::prelude::*;

use super::layout::Layout;
pub(super) use crate::cube::rows::{
    Matrix, Rows, StoredVec4, Vec4, contiguous_rows, load_vec4, store_vec4,
};

#[derive(CubeType)]
pub(super) struct SharedMemory<E: Float> {
    #[cube(comptime)]
    pub(super) layout: Layout,
    /// In `f32`: chunks of the operands (without cooperative matrices), a tile, and values for
    /// reductions.
    pub(super) full: Shared<[Vec4]>,
    /// The operands of cooperative matrix instructions.
    pub(super) half: Shared<[StoredVec4<E>]>,
}

#[cube]
impl<E: Float> SharedMemory<E> {
    pub(super) fn new(#[comptime] layout: Layout) -> Self {
        SharedMemory::<E> {
            layout,
            full: Shared::<[Vec4]>::new_slice(comptime!(layout.full_len())),
            half: Shared::<[StoredVec4<E>]>::new_slice(comptime!(layout.half_len())),
        }
    }
}

#[cube]
pub(super) fn zero_sums(#[comptime] len: usize) -> Array<Vec4> {
    let mut sums = Array::<Vec4>::new(len);
    #[unroll]
    for i in 0..len {
        sums[i] = Vec4::new(0.0f32);
    }
    sums
}

/// The row and column of a unit in its cube.
#[cube]
pub(super) fn unit_position(#[comptime] layout: Layout) -> (usize, usize) {
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    (unit / cube_side, unit % cube_side)
}

/// The offset of a row of a tile in shared memory.
#[cube]
pub(super) fn tile_row_offset(row: usize, #[comptime] layout: Layout) -> usize {
    comptime!(layout.tile_offset()) + row * comptime!(layout.tile_stride())
}

/// Stores each unit's elements of a tile in shared memory, in `f32`.
#[cube]
pub(super) fn store_tile<E: Float>(elements: &mut Array<f32>, memory: &mut SharedMemory<E>) {
    let layout = comptime!(memory.layout);
    let [first, stride] = comptime!([layout.tile_offset(), layout.tile_stride()]);
    store_rows::<f32>(elements, &mut memory.full, first, stride, layout);
}

/// Stores each unit's elements of a tile as an operand of cooperative matrix instructions.
#[cube]
pub(super) fn store_half_tile<E: Float>(elements: &mut Array<f32>, memory: &mut SharedMemory<E>) {
    let layout = comptime!(memory.layout);
    let stride = comptime!(layout.half_stride());
    store_rows::<E>(elements, &mut memory.half, 0usize, stride, layout);
}

#[cube]
fn store_rows<E: Float>(
    elements: &mut Array<f32>,
    shared: &mut Shared<[StoredVec4<E>]>,
    #[comptime] first: usize,
    #[comptime] stride: usize,
    #[comptime] layout: Layout,
) {
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        let offset = first + (unit / cube_side + i * cube_side) * stride + unit % cube_side;
        #[unroll]
        for c in 0..comptime!(layout.unit_vec4s) {
            let mut vec4 = StoredVec4::<E>::new(E::from_int(0));
            #[unroll]
            for j in 0..4usize {
                let element = elements[i * comptime!(layout.unit_columns()) + c * 4 + j];
                vec4.insert(j, E::cast_from(element));
            }
            shared[offset + c * cube_side] = vec4;
        }
    }
}

/// Loads each unit's elements of a tile from shared memory.
#[cube]
pub(super) fn load_tile<E: Float>(elements: &mut Array<f32>, memory: &mut SharedMemory<E>) {
    let layout = comptime!(memory.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.unit_rows) {
        let offset = tile_row_offset(unit / cube_side + i * cube_side, layout) + unit % cube_side;
        #[unroll]
        for c in 0..comptime!(layout.unit_vec4s) {
            let vec4 = memory.full[offset + c * cube_side];
            #[unroll]
            for j in 0..4usize {
                elements[i * comptime!(layout.unit_columns()) + c * 4 + j] = vec4.extract(j);
            }
        }
    }
}
