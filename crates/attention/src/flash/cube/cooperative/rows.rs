//! Arguments of the kernels, and rows of tensors as tiles in shared memory.

use cubecl::ir::types::matrix::MatrixLayout;
use cubecl::prelude::*;

use super::fragment::Fragment;
use super::layout::{CooperativeLayout, VECTOR};
use super::parts::{FLOAT_EXPONENT, are_ordinary, is_non_finite, take_part};
use super::products::new_operands;
use crate::flash::cube::call::{Call, TensorStrides};
use crate::flash::cube::layout::FRAGMENT;

/// Eight elements in half precision, or four in `f32`.
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
    #[comptime] layout: CooperativeLayout,
) -> HeadRows {
    let elements = comptime!(layout.word());
    let start = example * strides.example as usize + head * strides.head as usize;
    HeadRows {
        start: start / elements,
        stride: strides.row as usize / elements,
        count: count as usize,
    }
}

/// The number of groups of eight elements of a unit.
fn unit_vectors(count: usize, size: usize, layout: CooperativeLayout) -> usize {
    (count * size / VECTOR).div_ceil(layout.units())
}

/// The vectors that a unit reads of `count` rows.
#[cube]
fn new_fetched(
    #[comptime] count: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) -> Array<Words> {
    Array::<Words>::new(comptime!(
        unit_vectors(count, size, layout) * layout.ty.words()
    ))
}

/// Reads each unit's part of `count` rows. Rows out of range are zeros.
#[cube]
fn fetch_rows(
    source: &[Words],
    rows: &HeadRows,
    first: usize,
    fetched: &mut Array<Words>,
    #[comptime] count: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let vectors = comptime!(size / VECTOR);
    let words = comptime!(layout.ty.words());
    #[unroll]
    for step in 0..comptime!(unit_vectors(count, size, layout)) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        let row = first + index / vectors;
        let position = rows.start + row * rows.stride + index % vectors * words;
        #[unroll]
        for i in 0..words {
            let mut word = Words::new(0u32);
            if row < rows.count {
                word = source[position + i];
            }
            fetched[comptime!(step * words + i)] = word;
        }
    }
}

/// Stores what [`fetch_rows`] read in shared memory, from a vector on. The parts of a row are one
/// after the other.
#[cube]
fn put_rows(
    fetched: &Array<Words>,
    tiles: &mut Shared<[Words]>,
    #[comptime] offset: usize,
    #[comptime] count: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let end = comptime!(count * size / VECTOR);
    #[unroll]
    for step in 0..comptime!(unit_vectors(count, size, layout)) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        if comptime!((step + 1) * layout.units() <= end) {
            put_vector(fetched, tiles, index, offset, step, size, layout);
        } else if index < end {
            put_vector(fetched, tiles, index, offset, step, size, layout);
        }
    }
}

#[cube]
fn put_vector(
    fetched: &Array<Words>,
    tiles: &mut Shared<[Words]>,
    index: usize,
    #[comptime] offset: usize,
    #[comptime] step: usize,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let vectors = comptime!(size / VECTOR);
    let position = offset + index / vectors * comptime!(layout.row_stride(size)) + index % vectors;
    if comptime!(layout.ty.is_split()) {
        let mut elements = Array::<f32>::new(VECTOR);
        #[unroll]
        for i in 0..VECTOR {
            let words = fetched[comptime!(step * 2 + i / 4)];
            elements[i] = f32::reinterpret(words.extract(comptime!(i % 4)));
        }
        let are_ordinary = are_ordinary(&mut elements);
        #[unroll]
        for part in 0..comptime!(layout.ty.parts()) {
            let part_position = position + comptime!(part * vectors);
            tiles[part_position] = take_part(&mut elements, are_ordinary);
        }
    } else {
        tiles[position] = fetched[step];
    }
}

/// Each unit's part of the two column operands of a tile, of width `d_head` and `d_value`, which are
/// read while the tile before is computed.
#[derive(CubeType)]
pub(super) struct Fetched {
    pub(super) first: Array<Words>,
    pub(super) second: Array<Words>,
}

#[cube]
impl Fetched {
    pub(super) fn new(#[comptime] layout: CooperativeLayout) -> Fetched {
        let columns = comptime!(layout.columns);
        Fetched {
            first: new_fetched(columns, comptime!(layout.d_head), layout),
            second: new_fetched(columns, comptime!(layout.d_value), layout),
        }
    }

    /// Reads the rows of a tile from `row` on.
    pub(super) fn fetch(
        &mut self,
        first: &[Words],
        first_rows: &HeadRows,
        second: &[Words],
        second_rows: &HeadRows,
        row: usize,
        #[comptime] layout: CooperativeLayout,
    ) {
        let columns = comptime!(layout.columns);
        let d_head = comptime!(layout.d_head);
        let d_value = comptime!(layout.d_value);
        fetch_rows(
            first,
            first_rows,
            row,
            &mut self.first,
            columns,
            d_head,
            layout,
        );
        fetch_rows(
            second,
            second_rows,
            row,
            &mut self.second,
            columns,
            d_value,
            layout,
        );
    }

    /// Stores them in shared memory.
    pub(super) fn put(&self, tiles: &mut Shared<[Words]>, #[comptime] layout: CooperativeLayout) {
        let columns = comptime!(layout.columns);
        let offset = comptime!(layout.value_offset());
        put_rows(&self.first, tiles, 0usize, columns, layout.d_head, layout);
        put_rows(&self.second, tiles, offset, columns, layout.d_value, layout);
    }
}

/// Stores a non-finite element of each row that was read in `removed`, if there is one.
#[cube]
pub(super) fn note_non_finite(
    fetched: &Array<Words>,
    removed: &mut Shared<[f32]>,
    #[comptime] size: usize,
    #[comptime] layout: CooperativeLayout,
) {
    let columns = comptime!(layout.columns);
    let vectors = comptime!(size / VECTOR);
    let words = comptime!(layout.ty.words());
    #[unroll]
    for step in 0..comptime!(unit_vectors(layout.columns, size, layout)) {
        let row = (UNIT_POS as usize + step * comptime!(layout.units())) / vectors;
        #[unroll]
        for word in 0..words {
            let words = fetched[comptime!(step * words + word)];
            #[unroll]
            for i in 0..4usize {
                if comptime!(layout.ty.is_split()) {
                    let bits = words.extract(i);
                    if is_non_finite(bits) && row < columns {
                        // Any of several will do.
                        removed[row] = f32::reinterpret(bits);
                    }
                } else {
                    let exponent = comptime!(layout.ty.max_exponent());
                    #[unroll]
                    for half in 0..2u32 {
                        let bits = words.extract(i) >> comptime!(half * 16);
                        if bits & exponent == exponent && row < columns {
                            let sign_and_exponent = ((bits & 0x8000u32) << 16u32) | FLOAT_EXPONENT;
                            removed[row] =
                                f32::reinterpret(sign_and_exponent | ((bits & 0x3ffu32) << 13u32));
                        }
                    }
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
    let vectors = comptime!(layout.width(size) / VECTOR);
    let end = comptime!(layout.columns * vectors);
    let low = comptime!(layout.ty.max_exponent());
    let high = comptime!(layout.ty.max_exponent() << 16);
    for step in 0..comptime!(end.div_ceil(layout.units())) {
        let index = UNIT_POS as usize + step * comptime!(layout.units());
        if index < end {
            let row = index / vectors;
            let position = offset + row * comptime!(layout.row_stride(size)) + index % vectors;
            let mut words = tiles[position];
            #[unroll]
            for i in 0..4usize {
                let mut word = words.extract(i);
                word = select(word & low == low, word & 0xffff_0000u32, word);
                word = select(word & high == high, word & 0xffffu32, word);
                words.insert(i, word);
            }
            tiles[position] = words;
        }
    }
}

/// Loads the rows of each plane of a cube as left operands: for each step, for each fragment of rows,
/// the parts. There must be a barrier before.
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
    let parts = comptime!(layout.ty.parts());
    let stride = comptime!(layout.row_stride(size));
    let plane_row = PLANE_POS as usize * comptime!(layout.plane_rows());
    let operands = new_operands::<E>(comptime!(size / FRAGMENT * layout.fragments), layout);
    let mut fetched = new_fetched(columns, size, layout);
    // Shared memory has as many rows as a tile has columns.
    #[unroll]
    for rows_part in 0..comptime!(layout.tile_m() / layout.columns) {
        let first_row = first + rows_part * columns;
        fetch_rows(source, rows, first_row, &mut fetched, columns, size, layout);
        put_rows(&fetched, tiles, 0usize, columns, size, layout);
        sync_cube();
        if plane_row / columns == rows_part {
            #[unroll]
            for step in 0..comptime!(size / FRAGMENT) {
                #[unroll]
                for fragment in 0..fragments {
                    let row = plane_row % columns + fragment * FRAGMENT;
                    #[unroll]
                    for part in 0..parts {
                        let start =
                            row * stride + comptime!((part * size + step * FRAGMENT) / VECTOR);
                        let index = comptime!((step * fragments + fragment) * parts + part);
                        operands.index(index).load(
                            &tiles[start..comptime!(layout.tiles_len())],
                            comptime!(4 * layout.row_stride(size) as u32),
                            MatrixLayout::RowMajor,
                        );
                    }
                }
            }
        }
        sync_cube();
    }
    operands
}
