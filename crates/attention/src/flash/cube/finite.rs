//! NaN and infinity in masked rows of a matrix.
//!
//! The weight of a masked key is zero, and zero times NaN is NaN. The matmuls therefore replace
//! non-finite elements by zeros, and rows with a non-zero weight for one of them become infinite or
//! NaN afterwards.

use cubecl::prelude::*;

use super::layout::Matmul;
use super::memory::{Matrix, SharedMemory, StoredVec4, Vec4, load_vec4, tile_row_offset};
pub(super) use crate::cube::rows::is_finite;

/// [`load_vec4`]. If keys may be masked, non-finite elements are replaced by zeros and the flag in
/// shared memory is set.
#[cube]
pub(super) fn load_finite<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    row: usize,
    vec4: usize,
    may_mask: bool,
    memory: &mut SharedMemory<E>,
) -> StoredVec4<E> {
    let mut loaded = load_vec4::<E, N>(matrix, row, vec4);
    if may_mask {
        let mut found = false;
        #[unroll]
        for i in 0..4usize {
            let element = loaded.extract(i);
            if !is_finite(f32::cast_from(element)) {
                loaded.insert(i, E::from_int(0));
                found = true;
            }
        }
        if found {
            memory.full[comptime!(memory.layout.flag_offset())] = Vec4::new(1.0f32);
        }
    }
    loaded
}

/// Makes the sums of rows infinite or NaN that have a non-zero weight for a non-finite row of the
/// matrix.
#[cube]
pub(super) fn add_non_finite<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Vec4>,
    #[comptime] blocks: usize,
) {
    let layout = comptime!(memory.layout);
    let cube_side = comptime!(layout.cube_side);
    let unit_rows = comptime!(layout.unit_rows);
    let row_vec4s = comptime!(blocks * layout.unit_vec4s);
    let unit_row = UNIT_POS as usize / cube_side;
    let mut non_finite_sums = Array::<f32>::new(unit_rows);
    #[unroll]
    for i in 0..unit_rows {
        non_finite_sums[i] = 0.0f32;
    }
    for vec4_row in 0..comptime!(layout.tile_n() / 4) {
        #[unroll]
        for j in 0..4usize {
            let row = vec4_row * 4 + j;
            let mut non_finite = 0.0f32;
            for vec4 in 0..matrix.rows.width.div_ceil(4) {
                let loaded = Vec4::cast_from(load_vec4::<E, N>(matrix, row, vec4));
                #[unroll]
                for i in 0..4usize {
                    if !is_finite(loaded.extract(i)) {
                        non_finite = loaded.extract(i);
                    }
                }
            }
            if !is_finite(non_finite) {
                #[unroll]
                for i in 0..unit_rows {
                    let weight = load_weight::<E>(unit_row + i * cube_side, vec4_row, memory, j);
                    if weight != 0.0f32 {
                        non_finite_sums[i] += weight * non_finite;
                    }
                }
            }
        }
    }
    #[unroll]
    for i in 0..unit_rows {
        #[unroll]
        for vec4 in 0..row_vec4s {
            sums[i * row_vec4s + vec4] += Vec4::new(non_finite_sums[i]);
        }
    }
}

/// Element `j` of vec4 number `vec4` of a row of weights in shared memory.
#[cube]
#[allow(unused_assignments)] // kernel variables must be initialised before a branch
fn load_weight<E: Float>(
    row: usize,
    vec4: usize,
    memory: &mut SharedMemory<E>,
    #[comptime] j: usize,
) -> f32 {
    let layout = comptime!(memory.layout);
    let mut weight = 0.0f32;
    if comptime!(layout.matmul == Matmul::Cmma) {
        let offset = row * comptime!(layout.half_stride()) + vec4;
        weight = f32::cast_from(memory.half[offset].extract(j));
    } else {
        weight = memory.full[tile_row_offset(row, layout) + vec4].extract(j);
    }
    weight
}
