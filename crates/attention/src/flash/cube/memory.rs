//! Rows of a matrix in the device's memory, and the memory that the units of a cube share.

use cubecl::prelude::*;

use super::layout::Layout;

/// Four numbers side by side.
pub(super) type Four = Vector<f32, Const<4>>;

/// Four of them as they are stored.
pub(super) type Stored<E> = Vector<E, Const<4>>;

/// The memory that the units of a cube share.
#[derive(CubeType)]
pub(super) struct SharedMemory<E: Float> {
    /// What is in `f32`: chunks of matrices where units multiply, the numbers of a tile, and
    /// the words of units to each other.
    pub(super) wide: Shared<[Four]>,
    /// What matrix instructions multiply.
    pub(super) halves: Shared<[Stored<E>]>,
}

#[cube]
impl<E: Float> SharedMemory<E> {
    pub(super) fn new(#[comptime] layout: Layout) -> Self {
        SharedMemory::<E> {
            wide: Shared::<[Four]>::new_slice(comptime!(layout.shared())),
            halves: Shared::<[Stored<E>]>::new_slice(comptime!(layout.halves())),
        }
    }
}

/// Where some rows of a matrix lie: `stride` apart, from `start` on. Rows and columns that
/// are not there are read as zeros.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Rows {
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) width: usize,
}

/// The rows of a head of a contiguous tensor: `head` heads of as many rows lie before them.
#[cube]
pub(super) fn contiguous_rows(head: usize, count: u32, width: u32) -> Rows {
    Rows {
        start: head * count as usize * width as usize,
        stride: width as usize,
        count: count as usize,
        width: width as usize,
    }
}

/// Where a unit is in its cube: down and across.
#[cube]
pub(super) fn unit_position(#[comptime] layout: Layout) -> (usize, usize) {
    let side = comptime!(layout.side);
    let unit = UNIT_POS as usize;
    (unit / side, unit % side)
}

/// Four numbers of a row.
#[cube]
pub(super) fn load<E: Float, N: Size>(
    matrix: &[Vector<E, N>],
    rows: &Rows,
    row: usize,
    four: usize,
) -> Stored<E> {
    let mut loaded = Stored::<E>::new(E::from_int(0));
    let column = four * 4;
    let width = N::value();
    if row < rows.count && column < rows.width {
        let at = rows.start + row * rows.stride + column;
        if comptime!(width == 4) {
            let whole = matrix[at / 4];
            #[unroll]
            for i in 0..4usize {
                loaded.insert(i, whole.extract(i));
            }
        } else {
            #[unroll]
            for i in 0..4usize {
                if column + i < rows.width {
                    loaded.insert(i, matrix[at + i].extract(0usize));
                }
            }
        }
    }
    loaded
}

/// Writes four numbers of a row, as far as they are there.
#[cube]
pub(super) fn store<E: Float, N: Size>(
    matrix: &mut [Vector<E, N>],
    rows: &Rows,
    row: usize,
    four: usize,
    numbers: Four,
) {
    let column = four * 4;
    let width = N::value();
    if row < rows.count && column < rows.width {
        let at = rows.start + row * rows.stride + column;
        if comptime!(width == 4) {
            let mut whole = Vector::<E, N>::new(E::from_int(0));
            #[unroll]
            for i in 0..4usize {
                whole.insert(i, E::cast_from(numbers.extract(i)));
            }
            matrix[at / 4] = whole;
        } else {
            #[unroll]
            for i in 0..4usize {
                if column + i < rows.width {
                    matrix[at + i] = Vector::new(E::cast_from(numbers.extract(i)));
                }
            }
        }
    }
}

/// Where the weights of a row of a tile begin in shared memory.
#[cube]
pub(super) fn weights_of_row(row: usize, #[comptime] layout: Layout) -> usize {
    comptime!(layout.weights_at()) + row * comptime!(layout.weight_stride())
}

/// Puts each unit's numbers of a tile into shared memory, in `f32`.
#[cube]
pub(super) fn put_numbers(
    weights: &mut Array<f32>,
    shared: &mut Shared<[Four]>,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.rows) {
        let at = weights_of_row(unit / side + i * side, layout) + unit % side;
        #[unroll]
        for c in 0..comptime!(layout.fours) {
            let mut four = Four::new(0.0f32);
            #[unroll]
            for j in 0..4usize {
                four.insert(j, weights[i * comptime!(layout.columns()) + c * 4 + j]);
            }
            shared[at + c * side] = four;
        }
    }
}

/// Takes each unit's numbers back from there.
#[cube]
pub(super) fn take_numbers(
    weights: &mut Array<f32>,
    shared: &mut Shared<[Four]>,
    #[comptime] layout: Layout,
) {
    let side = comptime!(layout.side);
    let unit = UNIT_POS as usize;
    #[unroll]
    for i in 0..comptime!(layout.rows) {
        let at = weights_of_row(unit / side + i * side, layout) + unit % side;
        #[unroll]
        for c in 0..comptime!(layout.fours) {
            let four = shared[at + c * side];
            #[unroll]
            for j in 0..4usize {
                weights[i * comptime!(layout.columns()) + c * 4 + j] = four.extract(j);
            }
        }
    }
}
