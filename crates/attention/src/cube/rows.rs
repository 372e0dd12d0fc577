//! Rows of matrices in global memory.

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

pub(crate) type Vec4 = Vector<f32, Const<4>>;

/// A vec4 of the type in global memory.
pub(crate) type StoredVec4<E> = Vector<E, Const<4>>;

/// The location of some rows of a matrix. Rows and columns out of range are read as zeros.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Rows {
    pub(crate) start: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) width: usize,
}

/// The rows of a head in global memory, numbered from row `first` on.
#[derive(CubeType)]
pub(crate) struct Matrix<'a, E: Float, N: Size> {
    pub(crate) elements: &'a [Vector<E, N>],
    pub(crate) rows: Rows,
    first: usize,
}

#[cube]
impl<'a, E: Float, N: Size> Matrix<'a, E, N> {
    pub(crate) fn new(elements: &'a [Vector<E, N>], rows: Rows) -> Matrix<'a, E, N> {
        Matrix::<'a, E, N> {
            elements,
            rows,
            first: 0usize,
        }
    }

    pub(crate) fn has_row(&self, row: usize) -> bool {
        self.first + row < self.rows.count
    }

    /// The index of an element of a row among all elements.
    pub(crate) fn index(&self, row: usize, column: usize) -> usize {
        self.rows.start + (self.first + row) * self.rows.stride + column
    }

    /// The rows from `first` on.
    pub(crate) fn at(&self, first: usize) -> Matrix<'a, E, N> {
        Matrix::<'a, E, N> {
            elements: self.elements,
            rows: self.rows,
            first,
        }
    }
}

/// The rows of head number `head` of a contiguous tensor.
#[cube]
pub(crate) fn contiguous_rows(head: usize, count: u32, width: u32) -> Rows {
    Rows {
        start: head * count as usize * width as usize,
        stride: width as usize,
        count: count as usize,
        width: width as usize,
    }
}

#[cube]
pub(crate) fn load_vec4<E: Float, N: Size>(
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
pub(crate) fn store_vec4<E: Float, N: Size>(
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

#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct TensorStrides {
    pub(crate) example: u32,
    pub(crate) head: u32,
    pub(crate) row: u32,
}

#[cube]
impl TensorStrides {
    /// The `count` rows of a head.
    pub(crate) fn matrix<'a, E: Float, N: Size>(
        &self,
        elements: &'a [Vector<E, N>],
        example: usize,
        head: usize,
        count: u32,
        width: u32,
    ) -> Matrix<'a, E, N> {
        let rows = Rows {
            start: example * self.example as usize + head * self.head as usize,
            stride: self.row as usize,
            count: count as usize,
            width: width as usize,
        };
        Matrix::new(elements, rows)
    }
}

impl TensorStridesLaunch {
    pub(crate) fn from_tensor(tensor: &CubeTensor) -> Self {
        let strides = tensor.meta.strides();
        Self::new(strides[0] as u32, strides[1] as u32, strides[2] as u32)
    }
}

/// Strides of a tensor that broadcasts to the scores; zero for broadcast dimensions.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct BroadcastStrides {
    example: u32,
    head: u32,
    query: u32,
    key: u32,
}

#[cube]
impl BroadcastStrides {
    pub(crate) fn offset(&self, example: usize, head: usize, query: usize, key: usize) -> usize {
        example * self.example as usize
            + head * self.head as usize
            + query * self.query as usize
            + key * self.key as usize
    }
}

impl BroadcastStridesLaunch {
    pub(crate) fn from_tensor(tensor: Option<&CubeTensor>) -> Self {
        let stride = |dim: usize| match tensor {
            Some(tensor) if tensor.meta.shape()[dim] > 1 => tensor.meta.strides()[dim] as u32,
            _ => 0,
        };
        Self::new(stride(0), stride(1), stride(2), stride(3))
    }
}

/// Checks the bits: shader compilers may assume that every float is finite.
#[cube]
pub(crate) fn is_finite(element: f32) -> bool {
    u32::reinterpret(element) & 0x7f80_0000u32 != 0x7f80_0000u32
}
