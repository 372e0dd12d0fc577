//! The kernels.

use cubecl::prelude::*;

use crate::cube::rows::Vec4;

/// Columns of the state that a cube computes: every column is a recurrence of its own.
pub(super) const COLUMNS: usize = 16;
const COLUMN_VEC4S: usize = COLUMNS / 4;

/// Elements of a row of `left` that are in shared memory at once.
const DEPTH: usize = 32;
/// The length of such a row, which avoids bank conflicts of units that read one column.
const STAGED_ROW: usize = DEPTH + 1;

/// The decay of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DecayKind {
    /// 1
    None,
    /// One number.
    Scalar,
    /// One for each row of the state.
    Rows,
}

/// The order of the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Direction {
    /// `rows = rows_in - left · S`, then `S = decay · S + rightᵀ rows`.
    Forward,
    /// From the last chunk: `rows = rows_in + left · S`, then `S = decay · S + added - rightᵀ rows`.
    Backward,
}

/// What is known at compile time of [`scan_chunks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ScanKind {
    pub(super) direction: Direction,
    /// Positions in a chunk.
    pub(super) size: usize,
    pub(super) d_head: usize,
    pub(super) decay: DecayKind,
    /// Whether a term of `rows` or of the state is present.
    pub(super) has_left: bool,
    pub(super) has_right: bool,
    pub(super) has_rows: bool,
    /// Forward, the initial state; backward, the gradients of all states.
    pub(super) has_added: bool,
    /// Units of a cube.
    pub(super) units: usize,
}

impl ScanKind {
    pub(super) fn shared_bytes(&self) -> usize {
        16 * COLUMN_VEC4S * (self.d_head + self.size) + 4 * self.size * STAGED_ROW
    }

    fn row_vec4s(&self) -> usize {
        self.size * COLUMN_VEC4S
    }

    /// Vec4s of `rows` that a unit computes.
    fn rows_of_unit(&self) -> usize {
        self.row_vec4s().div_ceil(self.units)
    }
}

/// Four columns of a row of a matrix with `width` columns; zeros beyond them.
#[cube]
fn load_columns(elements: &[f32], row: usize, column: usize, width: usize) -> Vec4 {
    let mut loaded = Vec4::new(0.0f32);
    #[unroll]
    for i in 0..4usize {
        if column + i < width {
            loaded.insert(i, elements[row * width + column + i]);
        }
    }
    loaded
}

#[cube]
fn store_columns(elements: &mut [f32], row: usize, column: usize, width: usize, values: Vec4) {
    #[unroll]
    for i in 0..4usize {
        if column + i < width {
            elements[row * width + column + i] = values.extract(i);
        }
    }
}

/// The recurrence over the chunks of a head. A cube computes [`COLUMNS`] columns, one chunk after the
/// other; `states` has one matrix more than there are chunks.
///
/// - `left`, `right`: `[heads, count, size, d_head]`
/// - `rows_in`, `rows_out`: `[heads, count, size, width]`
/// - `decay`: `[heads, count, 1 or d_head]`
/// - `added`: `[heads, d_head, width]` forward, as `states` backward
/// - `states`: `[heads, count + 1, d_head, width]`
#[cube(launch_unchecked)]
pub(super) fn scan_chunks(
    left: &[f32],
    right: &[f32],
    rows_in: &[f32],
    decay: &[f32],
    added: &[f32],
    states: &mut [f32],
    rows_out: &mut [f32],
    count: u32,
    width: u32,
    #[comptime] kind: ScanKind,
) {
    let size = comptime!(kind.size);
    let d_head = comptime!(kind.d_head);
    let units = comptime!(kind.units);
    let is_forward = comptime!(kind.direction == Direction::Forward);
    let state_vec4s = comptime!(kind.d_head * COLUMN_VEC4S);
    let row_vec4s = comptime!(kind.row_vec4s());
    let count = count as usize;
    let width = width as usize;
    let unit = UNIT_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let first_column = CUBE_POS_X as usize * COLUMNS;
    let first_state = head * (count + 1) * d_head;

    let mut state = Shared::<[Vec4]>::new_slice(comptime!(kind.d_head * COLUMN_VEC4S));
    let mut rows = Shared::<[Vec4]>::new_slice(comptime!(kind.row_vec4s()));
    let mut staged = Shared::<[f32]>::new_slice(comptime!(kind.size * STAGED_ROW));
    let mut products = Array::<Vec4>::new(comptime!(kind.rows_of_unit()));

    let mut start = first_state;
    let mut first_added = head * d_head;
    if comptime!(!is_forward) {
        start += count * d_head;
        first_added = start;
    }
    for index in range_stepped(unit, state_vec4s, units) {
        let (row, column) = (
            index / COLUMN_VEC4S,
            first_column + index % COLUMN_VEC4S * 4,
        );
        let mut loaded = Vec4::new(0.0f32);
        if comptime!(kind.has_added) {
            loaded = load_columns(added, first_added + row, column, width);
        }
        state[index] = loaded;
        store_columns(states, start + row, column, width, loaded);
    }

    for step in 0..count {
        let mut chunk = step;
        if comptime!(!is_forward) {
            chunk = count - 1 - step;
        }
        let first_row = (head * count + chunk) * size;

        #[unroll]
        for i in 0..comptime!(kind.rows_of_unit()) {
            products[i] = Vec4::new(0.0f32);
        }
        if comptime!(kind.has_left) {
            for part in 0..comptime!(kind.d_head.div_ceil(DEPTH)) {
                let first = part * DEPTH;
                // The state was written, and other units may still read the previous part.
                sync_cube();
                for index in range_stepped(unit, comptime!(kind.size * DEPTH), units) {
                    let (row, depth) = (index / DEPTH, index % DEPTH);
                    let mut element = 0.0f32;
                    if first + depth < d_head {
                        element = left[(first_row + row) * d_head + first + depth];
                    }
                    staged[row * STAGED_ROW + depth] = element;
                }
                sync_cube();
                let depths = min(d_head - first, DEPTH);
                #[unroll]
                for i in 0..comptime!(kind.rows_of_unit()) {
                    let index = unit + comptime!(i * kind.units);
                    if index < row_vec4s {
                        let (row, vec4) = (index / COLUMN_VEC4S, index % COLUMN_VEC4S);
                        for depth in 0..depths {
                            let element = Vec4::new(staged[row * STAGED_ROW + depth]);
                            products[i] += element * state[(first + depth) * COLUMN_VEC4S + vec4];
                        }
                    }
                }
            }
        }
        // Other units may still read the rows of the previous chunk.
        sync_cube();
        #[unroll]
        for i in 0..comptime!(kind.rows_of_unit()) {
            let index = unit + comptime!(i * kind.units);
            if index < row_vec4s {
                let (row, vec4) = (index / COLUMN_VEC4S, index % COLUMN_VEC4S);
                let column = first_column + vec4 * 4;
                let mut result = Vec4::new(0.0f32);
                if comptime!(kind.has_rows) {
                    result = load_columns(rows_in, first_row + row, column, width);
                }
                if comptime!(is_forward) {
                    result -= products[i];
                } else {
                    result += products[i];
                }
                rows[index] = result;
                // Without `left` the rows are the input.
                if comptime!(kind.has_left) {
                    store_columns(rows_out, first_row + row, column, width, result);
                }
            }
        }
        sync_cube();
        let mut next = first_state + chunk * d_head;
        if comptime!(is_forward) {
            next += d_head;
        }
        for index in range_stepped(unit, state_vec4s, units) {
            let (row, vec4) = (index / COLUMN_VEC4S, index % COLUMN_VEC4S);
            let column = first_column + vec4 * 4;
            let mut result = state[index];
            if comptime!(kind.decay == DecayKind::Scalar) {
                result *= Vec4::new(decay[head * count + chunk]);
            }
            if comptime!(kind.decay == DecayKind::Rows) {
                result *= Vec4::new(decay[(head * count + chunk) * d_head + row]);
            }
            if comptime!(!is_forward) {
                result += load_columns(added, next + row, column, width);
            }
            if comptime!(kind.has_right) {
                let mut sum = Vec4::new(0.0f32);
                for position in 0..size {
                    let element = right[(first_row + position) * d_head + row];
                    sum += Vec4::new(element) * rows[position * COLUMN_VEC4S + vec4];
                }
                if comptime!(is_forward) {
                    result += sum;
                } else {
                    result -= sum;
                }
            }
            state[index] = result;
            store_columns(states, next + row, column, width, result);
        }
    }
}

/// Units of a cube of [`sum_decay_gradient`].
pub(super) const SUM_UNITS: usize = 64;

/// The gradient of the decay of each chunk: the sum of `d_after ∘ before` over the columns of each row, or over
/// the whole state. A cube computes one chunk of a head, and a unit the rows that are [`SUM_UNITS`] apart.
///
/// - `states`, `d_states`: `[heads, count + 1, d_head, width]`
/// - `d_decay`: `[heads, count, 1 or d_head]`
#[cube(launch_unchecked)]
pub(super) fn sum_decay_gradient(
    states: &[f32],
    d_states: &[f32],
    d_decay: &mut [f32],
    count: u32,
    d_head: u32,
    width: u32,
    #[comptime] decay: DecayKind,
) {
    let (count, d_head, width) = (count as usize, d_head as usize, width as usize);
    let chunk = CUBE_POS_X as usize;
    let head = CUBE_POS_Y as usize;
    let unit = UNIT_POS_X as usize;
    let before = (head * (count + 1) + chunk) * d_head;
    let after = before + d_head;
    let mut sums = Shared::<[f32]>::new_slice(SUM_UNITS);
    let mut sum_of_unit = 0.0f32;
    for row in range_stepped(unit, d_head, SUM_UNITS) {
        let mut sum = 0.0f32;
        for column in 0..width {
            let gradient = d_states[(after + row) * width + column];
            sum += gradient * states[(before + row) * width + column];
        }
        if comptime!(decay == DecayKind::Rows) {
            d_decay[(head * count + chunk) * d_head + row] = sum;
        }
        sum_of_unit += sum;
    }
    if comptime!(decay == DecayKind::Scalar) {
        sums[unit] = sum_of_unit;
        sync_cube();
        if unit == 0 {
            let mut total = 0.0f32;
            for i in 0..SUM_UNITS {
                total += sums[i];
            }
            d_decay[head * count + chunk] = total;
        }
    }
}

/// Matrices of at most this size are inverted in shared memory.
pub(super) const MAX_INVERTED: usize = 64;

/// Inverts `I + B` for strictly lower triangular matrices `B`, `[count, size, size]`. A cube computes one
/// matrix and a unit one column, by forward substitution.
#[cube(launch_unchecked)]
pub(super) fn invert_unit_lower(
    lower: &[f32],
    inverse: &mut [f32],
    count: u32,
    #[comptime] size: usize,
) {
    let matrix = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
    let column = UNIT_POS_X as usize;
    // Each unit reads only what it wrote.
    let mut columns = Shared::<[f32]>::new_slice(comptime!(size * size));
    if matrix < count as usize {
        let first = matrix * size * size;
        for row in 0..size {
            let mut element = 0.0f32;
            if row == column {
                element = 1.0f32;
            }
            for before in 0..row {
                element -= lower[first + row * size + before] * columns[before * size + column];
            }
            columns[row * size + column] = element;
            inverse[first + row * size + column] = element;
        }
    }
}
