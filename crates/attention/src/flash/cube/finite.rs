//! Rows of a matrix that are not finite, where a mask may hide them.
//!
//! The weight of a hidden key is zero, and zero times NaN is NaN. So the products of matrices are
//! made without elements that are not finite, and rows that do have a weight for one of them are
//! made infinite or NaN afterwards.

use cubecl::prelude::*;

use super::layout::{By, Layout};
use super::memory::{Four, Rows, SharedMemory, Stored, load, weights_of_row};

/// [`load`], with zeros for elements that are not finite where keys may be hidden. That there
/// were any is noted.
#[cube]
pub(super) fn load_finite<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    rows: &Rows,
    row: usize,
    four: usize,
    may_hide: bool,
    wide: &mut Shared<[Four]>,
    #[comptime] layout: Layout,
) -> Stored<E> {
    let mut loaded = load::<E, N>(matrix, rows, row, four);
    if may_hide {
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
            wide[comptime!(layout.flag_at())] = Four::new(1.0f32);
        }
    }
    loaded
}

/// Asks the bits: compilers of shaders may take every number for finite.
#[cube]
fn is_finite(element: f32) -> bool {
    u32::reinterpret(element) & 0x7f80_0000u32 != 0x7f80_0000u32
}

/// Makes the sums of a unit's rows infinite or NaN that have a weight for a row of the matrix
/// which is not finite.
#[cube]
pub(super) fn add_non_finite<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    matrix_rows: &Rows,
    first: usize,
    memory: &mut SharedMemory<E>,
    sums: &mut Array<Four>,
    #[comptime] blocks: usize,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let rows = comptime!(layout.rows);
    let parts = comptime!(blocks * layout.fours);
    let down = UNIT_POS as usize / side;
    let mut poison = Array::<f32>::new(rows);
    #[unroll]
    for i in 0..rows {
        poison[i] = 0.0f32;
    }
    for across in 0..comptime!(layout.across() / 4) {
        #[unroll]
        for j in 0..4usize {
            let row = first + across * 4 + j;
            let mut infinite = 0.0f32;
            for four in 0..matrix_rows.width.div_ceil(4) {
                let loaded = Four::cast_from(load::<E, N>(matrix, matrix_rows, row, four));
                #[unroll]
                for i in 0..4usize {
                    if !is_finite(loaded.extract(i)) {
                        infinite = loaded.extract(i);
                    }
                }
            }
            if !is_finite(infinite) {
                #[unroll]
                for i in 0..rows {
                    let weight = weight_of_row::<E>(down + i * side, across, memory, j, layout);
                    if weight != 0.0f32 {
                        poison[i] += weight * infinite;
                    }
                }
            }
        }
    }
    #[unroll]
    for i in 0..rows {
        #[unroll]
        for part in 0..parts {
            sums[i * parts + part] += Four::new(poison[i]);
        }
    }
}

/// A weight that [`put_weights`] put there: of a row, the `j`-th of the `across`-th four.
#[cube]
#[allow(unused_assignments)] // a kernel's variable needs a value before a branch
fn weight_of_row<E: Float>(
    row: usize,
    across: usize,
    memory: &mut SharedMemory<E>,
    #[comptime] j: usize,
    #[comptime] layout: Layout,
) -> f32 {
    let mut weight = 0.0f32;
    if comptime!(layout.by == By::Matrices) {
        let at = row * comptime!(layout.half_stride()) + across;
        weight = f32::cast_from(memory.halves[at].extract(j));
    } else {
        weight = memory.wide[weights_of_row(row, layout) + across].extract(j);
    }
    weight
}
