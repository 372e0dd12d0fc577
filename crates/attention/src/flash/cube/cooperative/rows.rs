//! Arguments of the kernels, and rows of tensors as tiles in shared memory.

use cubecl::ir::types::matrix::{MatrixIdent, MatrixLayout};
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, VECTOR, row_stride};
use crate::flash::cube::call::{Call, TensorStrides};
use crate::flash::cube::layout::FRAGMENT;

/// Eight elements in half precision.
pub(super) type Words = Vector<u32, Const<4>>;

/// The inputs that all kernels share.
#[derive(CubeType, CubeLaunch)]
pub(in crate::flash::cube) struct CooperativeArgs {
    pub(super) query: &'static [Words],
    pub(super) key: &'static [Words],
    pub(super) value: &'static [Words],
    pub(super) plan: &'static [u32],
    pub(super) call: Call,
    #[cube(comptime)]
    pub(super) layout: CooperativeLayout,
}

/// The rows of a head in global memory, in vectors.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct HeadRows {
    start: usize,
    stride: usize,
    count: usize,
}

#[cube]
pub(super) fn head_rows(
    strides: &TensorStrides,
    example: usize,
    head: usize,
    count: u32,
) -> HeadRows {
    let start = example * strides.example as usize + head * strides.head as usize;
    HeadRows {
        start: start / VECTOR,
        stride: strides.row as usize / VECTOR,
        count: count as usize,
    }
}

/// The number of vectors of [`fetch_rows`].
pub(super) fn fetched_len(count: usize, size: usize, layout: CooperativeLayout) -> usize {
    (count * size / VECTOR).div_ceil(layout.units())
}

/// Reads each unit's part of `count` rows. Rows out of range are zeros.
#[cube]
pub(super) fn fetch_rows(
    source: &[Words],
    rows: &HeadRows,
    first: usize,
    fetched: &mut Array<Words>,
    #[comptime] count: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let vectors = comptime!(size / VECTOR);
    #[unroll]
    for step in 0..comptime!(fetched_len(count, size, layout)) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        let row = first + index / vectors;
        let mut words = Words::new(0u32);
        if row < rows.count {
            words = source[rows.start + row * rows.stride + index % vectors];
        }
        fetched[step] = words;
    }
}

/// Stores what [`fetch_rows`] read in shared memory, from a vector on.
#[cube]
pub(super) fn put_rows(
    fetched: &Array<Words>,
    tiles: &mut Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] count: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let vectors = comptime!(size / VECTOR);
    let stride = comptime!(row_stride(size));
    let end = comptime!(count * size / VECTOR);
    #[unroll]
    for step in 0..comptime!(fetched_len(count, size, layout)) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        if comptime!((step + 1) * layout.units() <= end) {
            tiles[offset + index / vectors * stride + index % vectors] = fetched[step];
        } else if index < end {
            tiles[offset + index / vectors * stride + index % vectors] = fetched[step];
        }
    }
}

/// The half with this exponent is infinite or NaN.
const EXPONENT: u32 = 0x7c00;

/// Stores a non-finite element of each row that [`fetch_rows`] read in `removed`, if there is one.
#[cube]
pub(super) fn note_non_finite(
    fetched: &Array<Words>,
    removed: &mut Shared<[f32]>,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let columns = comptime!(layout.columns);
    let vectors = comptime!(size / VECTOR);
    #[unroll]
    for step in 0..comptime!(fetched_len(layout.columns, size, layout)) {
        let row = (UNIT_POS as usize + step * comptime!(layout.units())) / vectors;
        let words = fetched[step];
        #[unroll]
        for i in 0..4usize {
            #[unroll]
            for half in 0..2u32 {
                let bits = words.extract(i) >> comptime!(half * 16);
                if bits & EXPONENT == EXPONENT && row < columns {
                    let sign_and_exponent = ((bits & 0x8000u32) << 16u32) | 0x7f80_0000u32;
                    // Any of several will do.
                    removed[row] =
                        f32::reinterpret(sign_and_exponent | ((bits & 0x3ffu32) << 13u32));
                }
            }
        }
    }
}

/// Replaces non-finite elements of a column operand in shared memory by zeros. There must be barriers
/// before and after.
#[cube]
pub(super) fn remove_non_finite(
    tiles: &mut Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let vectors = comptime!(size / VECTOR);
    let end = comptime!(layout.columns * size / VECTOR);
    for step in 0..comptime!(fetched_len(layout.columns, size, layout)) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        if index < end {
            let position = offset + index / vectors * comptime!(row_stride(size)) + index % vectors;
            let mut words = tiles[position];
            #[unroll]
            for i in 0..4usize {
                let mut word = words.extract(i);
                word = select(word & EXPONENT == EXPONENT, word & 0xffff_0000u32, word);
                let high = comptime!(EXPONENT << 16);
                word = select(word & high == high, word & 0xffffu32, word);
                words.insert(i, word);
            }
            tiles[position] = words;
        }
    }
}

/// Loads the rows of each plane of a cube as left operands: for each step, for each fragment of rows.
/// There must be a barrier before.
#[cube]
pub(super) fn load_row_operands<E: Float>(
    source: &[Words],
    rows: &HeadRows,
    first: usize,
    tiles: &mut Shared<[Words]>,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) -> Sequence<Fragment> {
    let columns = comptime!(layout.columns);
    let fragments = comptime!(layout.fragments);
    let stride = comptime!(row_stride(size));
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let operands = new_weights::<E>(comptime!(size / FRAGMENT * layout.fragments));
    let mut fetched = Array::<Words>::new(comptime!(fetched_len(columns, size, layout)));
    // Shared memory has as many rows as a tile has columns.
    #[unroll]
    for part in 0..comptime!(layout.tile_m() / layout.columns) {
        let first_row = first + part * columns;
        fetch_rows(source, rows, first_row, &mut fetched, columns, size, layout);
        put_rows(&fetched, tiles, 0usize, columns, size, layout);
        sync_cube();
        if plane_row / columns == part {
            #[unroll]
            for step in 0..comptime!(size / FRAGMENT) {
                #[unroll]
                for fragment in 0..fragments {
                    let row = plane_row % columns + fragment * FRAGMENT;
                    let start = row * stride + comptime!(step * FRAGMENT / VECTOR);
                    operands.index(comptime!(step * fragments + fragment)).load(
                        &tiles[start..comptime!(layout.tiles_len())],
                        comptime!(4 * row_stride(size) as u32),
                        MatrixLayout::RowMajor,
                    );
                }
            }
        }
        sync_cube();
    }
    operands
}

/// `sums += left · rowsᵀ` for 16 rows of a column operand in shared memory, the first of which is at
/// `offset`.
#[cube]
pub(super) fn add_products<E: Float>(
    sums: &Sequence<Fragment>,
    operands: &Sequence<Fragment>,
    tiles: &Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let fragments = comptime!(layout.fragments);
    #[unroll]
    for step in 0..comptime!(size / FRAGMENT) {
        let start = comptime!(offset + step * FRAGMENT / VECTOR);
        let right = Fragment::new::<E>(MatrixIdent::B, E::from_int(0));
        right.load(
            &tiles[start..comptime!(layout.tiles_len())],
            comptime!(4 * row_stride(size) as u32),
            MatrixLayout::ColMajor,
        );
        #[unroll]
        for fragment in 0..fragments {
            let left = operands.index(comptime!(step * fragments + fragment));
            sums.index(fragment).multiply_add(left, &right);
        }
    }
}

/// `sums += weights · tile` for a column operand in shared memory. Weights are in the order of the
/// steps, sums in that of the columns, and in both for each fragment of rows.
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
    let stride = comptime!(row_stride(size));
    #[unroll]
    for step in 0..comptime!(layout.steps()) {
        #[unroll]
        for column in 0..comptime!(size / FRAGMENT) {
            let start = comptime!(offset + step * FRAGMENT * stride + column * FRAGMENT / VECTOR);
            let right = Fragment::new::<E>(MatrixIdent::B, E::from_int(0));
            right.load(
                &tiles[start..comptime!(layout.tiles_len())],
                comptime!(4 * row_stride(size) as u32),
                MatrixLayout::RowMajor,
            );
            #[unroll]
            for fragment in 0..fragments {
                let weights = weights.index(comptime!(step * fragments + fragment));
                let sum = sums.index(comptime!(column * fragments + fragment));
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

/// Left operands to be overwritten.
#[cube]
pub(super) fn new_weights<E: Float>(#[comptime] len: usize) -> Sequence<Fragment> {
    let mut weights = Sequence::<Fragment>::new();
    #[unroll]
    for _ in 0..len {
        weights.push(Fragment::new::<E>(MatrixIdent::A, E::from_int(0)));
    }
    weights
}
