//! Rows of matrices in global memory, and the shared memory of a cube.

use cubecl::prelude::*;

use super::layout::Layout;

pub(super) type Vec4 = Vector<f32, Const<4>>;

/// A vec4 of the type in global memory.
pub(super) type StoredVec4<E> = Vector<E, Const<4>>;

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

/// The location of some rows of a matrix. Rows and columns out of range are read as zeros.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Rows {
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

/// The rows of a head in global memory, numbered from row `first` on.
#[derive(CubeType)]
pub(super) struct Matrix<'a, E: Float, N: Size> {
    pub(super) elements: &'a [Vector<E, N>],
    pub(super) rows: Rows,
    first: usize,
}

#[cube]
impl<'a, E: Float, N: Size> Matrix<'a, E, N> {
    pub(super) fn new(elements: &'a [Vector<E, N>], rows: Rows) -> Matrix<'a, E, N> {
        Matrix::<'a, E, N> {
            elements,
            rows,
            first: 0usize,
        }
    }

    pub(super) fn has_row(&self, row: usize) -> bool {
        self.first + row < self.rows.count
    }

    /// The index of an element of a row among all elements.
    pub(super) fn index(&self, row: usize, column: usize) -> usize {
        self.rows.start + (self.first + row) * self.rows.stride + column
    }

    /// The rows from `first` on.
    pub(super) fn at(&self, first: usize) -> Matrix<'a, E, N> {
        Matrix::<'a, E, N> {
            elements: self.elements,
            rows: self.rows,
            first,
        }
    }
}

/// The rows of head number `head` of a contiguous tensor.
#[cube]
pub(super) fn contiguous_rows(head: usize, count: u32, width: u32) -> Rows {
    Rows {
        start: head * count as usize * width as usize,
        stride: width as usize,
        count: count as usize,
        width: width as usize,
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

#[cube]
pub(super) fn load_vec4<E: Float, N: Size>(
    matrix: &Matrix<'_, E, N>,
    row_in: usize,
    vec4: usize,
) -> StoredVec4<E> {
    let rows = &matrix.rows;
    let row = matrix.first + row_in;
    let mut loaded = StoredVec4::<E>::new(E::from_int(0));
    let column = vec4 * 4;
    let width = N::value();
    if row < rows.count && column < rows.width {
        let offset = rows.start + row * rows.stride + column;
        if comptime!(width == 4) {
            let whole = matrix.elements[offset / 4];
            #[unroll]
            for i in 0..4usize {
                loaded.insert(i, whole.extract(i));
            }
        } else {
            #[unroll]
            for i in 0..4usize {
                if column + i < rows.width {
                    loaded.insert(i, matrix.elements[offset + i].extract(0usize));
                }
            }
        }
    }
    loaded
}

/// Stores vec4 number `vec4` of a row, as far as it is within the row.
#[cube]
pub(super) fn store_vec4<E: Float, N: Size>(
    matrix: &mut [Vector<E, N>],
    rows: &Rows,
    row: usize,
    vec4: usize,
    values: Vec4,
) {
    let column = vec4 * 4;
    let width = N::value();
    if row < rows.count && column < rows.width {
        let offset = rows.start + row * rows.stride + column;
        if comptime!(width == 4) {
            let mut whole = Vector::<E, N>::new(E::from_int(0));
            #[unroll]
            for i in 0..4usize {
                whole.insert(i, E::cast_from(values.extract(i)));
            }
            matrix[offset / 4] = whole;
        } else {
            #[unroll]
            for i in 0..4usize {
                if column + i < rows.width {
                    matrix[offset + i] = Vector::new(E::cast_from(values.extract(i)));
                }
            }
        }
    }
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
