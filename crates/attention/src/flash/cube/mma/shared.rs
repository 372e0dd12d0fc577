//! Rows in shared memory, to which they are copied asynchronously.

use cubecl::prelude::barrier::copy_async_checked;
use cubecl::prelude::*;

use super::layout::{Instructions, MmaLayout};
use crate::flash::cube::memory::Matrix;

/// The index in shared memory of the first element of a vector of 16 bytes of one of `rows` rows.
/// `wgmma` has panels of 128 bytes per row, in which the vectors of eight rows are permuted so that those of a
/// column are in different banks.
#[cube]
pub(super) fn shared_index(
    row: usize,
    vector: usize,
    #[comptime] rows: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) -> usize {
    let vec = comptime!(layout.ty.vec());
    if comptime!(layout.instructions == Instructions::Wgmma) {
        let vecs = comptime!(layout.panel_vecs());
        let panel_row = vector / vecs * rows + row;
        (panel_row * vecs + ((vector % vecs) ^ (row % 8))) * vec
    } else {
        row * comptime!(layout.row_stride(size)) + vector * vec
    }
}

/// Starts the copy of `count` rows of a matrix to shared memory, from row `first_row` of `rows` there
/// on. Rows out of range become zeros.
#[cube]
pub(super) fn copy_rows<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    tile: &mut Shared<[Vector<E, N>]>,
    first_row: usize,
    #[comptime] count: usize,
    #[comptime] rows: usize,
    #[comptime] size: usize,
    #[comptime] layout: MmaLayout,
) {
    let vec = comptime!(layout.ty.vec());
    let vecs = comptime!(size / layout.ty.vec());
    let units = comptime!(layout.units());
    let copies = comptime!(count * (size / layout.ty.vec()));
    #[unroll]
    for step in 0..comptime!(copies.div_ceil(units)) {
        let index = UNIT_POS as usize + step * units;
        if index < copies {
            let row = index / vecs;
            let vector = index % vecs;
            let target = shared_index(first_row + row, vector, rows, size, layout);
            let is_inside = matrix.has_row(row);
            let source = select(is_inside, matrix.index(row, vector * vec), 0usize);
            let length = select(is_inside, vec, 0usize);
            copy_async_checked(
                &matrix.elements[source..source + length],
                &mut tile[target..target + vec],
                comptime!(layout.ty.vec() as u32),
            );
        }
    }
}

/// Ends a group of copies.
#[cube]
pub(super) fn commit_copies() {
    gpu_asm!("cp.async.commit_group;");
}

/// Waits until all but the last `pending` groups of copies of the cube are complete.
#[cube]
pub(super) fn wait_for_copies(#[comptime] pending: usize, #[comptime] layout: MmaLayout) {
    gpu_asm!("cp.async.wait_group {};", const pending);
    sync_tiles(layout);
}

/// A barrier after which what the units of the cube wrote to shared memory can be multiplied.
#[cube]
pub(super) fn sync_tiles(#[comptime] layout: MmaLayout) {
    if comptime!(layout.instructions == Instructions::Wgmma) {
        // `wgmma` does not see other writes to shared memory without a fence.
        gpu_asm!("fence.proxy.async.shared::cta;");
    }
    sync_cube();
}
