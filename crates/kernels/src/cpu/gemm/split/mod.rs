//! Products of `f32` on AMX, in three parts.
//!
//! bf16 has the exponents of `f32` and 8 of its 24 significant bits, so an element is the sum of three
//! numbers in bf16, each the rounded remainder of the ones before: exactly, unless it is below about 1e-31,
//! where AMX treats the last parts as zero. Of the nine products of two elements' parts the six largest are
//! computed; the others are below the rounding error. AMX multiplies bf16 at twelve times the rate of
//! AVX-512 in `f32`, which leaves a factor of two for six products, of which packing takes a part.
//!
//! Both operands are packed into tiles for up to [`MAX_INNER`] elements of the inner dimension at a
//! time. If an element is infinite or NaN, or a product might overflow, the matmul is left to the kernels
//! for `f32`: infinity has no finite remainder, and the products of the parts may have other signs.

mod block;
mod pack;
#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use burn::tensor::bf16;

pub(super) use self::block::PartsProduct;
use self::pack::{Operand, pack_panel};
use super::Matrix;
use crate::cpu::bf16::{Amx, BLOCK, Bf16Set, Line, TILE, TILE_LINES, TileState, packed_memory};
use crate::cpu::parallel;

/// Inner elements that are packed at a time: then the panels that a task reads fit a core's cache.
const MAX_INNER: usize = 512;

/// Smaller matrices take less time without packing.
const MIN_SIZE: usize = 64;

/// With fewer rows, only products with a transposed right matrix are faster.
const MIN_ROWS: usize = 128;

/// Blocks of rows of a task.
const TASK_BLOCKS: usize = 4;

/// Parts of an element.
const PARTS: usize = 3;

/// Elements and sums from this magnitude on may be rounded to infinity: 2^127.
const MAX_ORDINARY: f64 = 1.7e38;

/// Whether [`multiply`] is faster than products in `f32`, on this CPU and for this size.
pub(super) fn is_faster(size: [usize; 3], b_is_transposed: bool) -> bool {
    let [rows, ..] = size;
    size.into_iter().all(|length| length >= MIN_SIZE)
        && (rows >= MIN_ROWS || b_is_transposed)
        && Bf16Set::detect() == Some(Bf16Set::Amx)
}

/// `c = a · b`; `false` if that cannot be computed in parts, and some of `c` are not written.
///
/// # Safety
///
/// [`is_faster`], and `a` and `b` have the elements of their sizes.
pub(super) unsafe fn multiply(
    size: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [MaybeUninit<f32>],
) -> bool {
    // SAFETY: as promised by the caller.
    unsafe { multiply_with::<Amx>(size, a, b, c) }
}

/// # Safety
///
/// The CPU has the instructions of `P` and AVX-512 F, BW, DQ and VL, and `a` and `b` have the elements of
/// their sizes.
unsafe fn multiply_with<P: PartsProduct>(
    [rows, inner, columns]: [usize; 3],
    a: Matrix<'_>,
    b: Matrix<'_>,
    c: &mut [MaybeUninit<f32>],
) -> bool {
    assert!(c.len() == rows * columns, "the output has other sizes");
    let left = Operand::rows(a, [rows, inner]);
    let right = Operand::columns(b, [inner, columns]);
    let blocks = [rows, columns].map(|length| length.div_ceil(BLOCK));
    // Parts of about equal length.
    let passes = inner.div_ceil(MAX_INNER);
    let each = inner.div_ceil(passes).next_multiple_of(BLOCK);
    let output = Output {
        start: c.as_mut_ptr().cast(),
        size: [rows, columns],
    };
    for first in (0..inner).step_by(each) {
        let range = first..inner.min(first + each);
        // SAFETY: the CPU has these instructions.
        let Some(panels) = (unsafe { Panels::pack([left, right], range, blocks) }) else {
            return false;
        };
        parallel::for_each(tasks(blocks), |task| {
            // SAFETY: tasks have different blocks of the output, and the CPU has the instructions.
            unsafe { panels.multiply::<P>(task, &output, first > 0) };
        });
    }
    true
}

/// Ranges of blocks of rows and columns, several for each thread.
fn tasks([rows, columns]: [usize; 2]) -> Vec<[Range<usize>; 2]> {
    let min_tasks = 4 * parallel::threads();
    let row_parts = rows.div_ceil(TASK_BLOCKS);
    let column_parts = min_tasks.div_ceil(row_parts).clamp(1, columns);
    let each = columns.div_ceil(column_parts);
    let parts = |count: usize, each: usize| {
        let first = (0..count).step_by(each);
        first.map(move |first| first..count.min(first + each))
    };
    parts(rows, TASK_BLOCKS)
        .flat_map(|rows| parts(columns, each).map(move |columns| [rows.clone(), columns]))
        .collect()
}

/// The output, which several tasks write to.
struct Output {
    start: *mut f32,
    /// Rows and columns.
    size: [usize; 2],
}

// SAFETY: tasks write different elements.
unsafe impl Sync for Output {}

/// Both operands in tiles, for a range of the inner dimension. A panel has 16 rows or columns: for each
/// 32 inner elements a tile of each part.
struct Panels {
    memory: Box<[MaybeUninit<Line>]>,
    /// Tiles of 32 inner elements.
    steps: usize,
    /// Panels of the left operand, which come first.
    left_panels: usize,
}

impl Panels {
    /// `None` if an element has no parts, or a sum of products may be infinite.
    ///
    /// # Safety
    ///
    /// The CPU has AVX-512 F, BW, DQ and VL, and the operands have the elements of their sizes.
    unsafe fn pack(
        operands: [Operand<'_>; 2],
        inner: Range<usize>,
        blocks: [usize; 2],
    ) -> Option<Self> {
        let steps = inner.len().div_ceil(BLOCK);
        let [left_panels, right_panels] = blocks.map(|blocks| 2 * blocks);
        let lines = steps * PARTS * TILE_LINES;
        let mut memory = packed_memory((left_panels + right_panels) * steps * PARTS);
        let largest = [const { AtomicU32::new(0) }; 2];
        // A task packs a block, which is two panels.
        let tasks: Vec<_> = memory.chunks_mut(2 * lines).enumerate().collect();
        parallel::for_each(tasks, |(block, memory)| {
            for (i, memory) in memory.chunks_mut(lines).enumerate() {
                let panel = 2 * block + i;
                let (side, panel) = match panel.checked_sub(left_panels) {
                    None => (0, panel),
                    Some(panel) => (1, panel),
                };
                // SAFETY: the caller promises the instructions; the memory has the tiles.
                let bits = unsafe {
                    pack_panel(
                        &operands[side],
                        16 * panel,
                        inner.clone(),
                        memory.as_mut_ptr().cast(),
                    )
                };
                largest[side].fetch_max(bits, Ordering::Relaxed);
            }
        });
        let largest = largest.map(|bits| f64::from(f32::from_bits(bits.into_inner())));
        let [left, right] = largest;
        let sum = left * right * inner.len() as f64;
        // False for NaN.
        let is_ordinary = [left, right, sum].into_iter().all(|x| x < MAX_ORDINARY);
        is_ordinary.then_some(Self {
            memory,
            steps,
            left_panels,
        })
    }

    /// Two panels from an even one on.
    fn pair(&self, panel: usize) -> [*const bf16; 2] {
        let elements = self.steps * PARTS * TILE;
        let start: *const bf16 = self.memory.as_ptr().cast();
        // In bounds: the memory has whole blocks of two panels.
        [panel, panel + 1].map(|panel| start.wrapping_add(panel * elements))
    }

    /// Computes some blocks of the output, or adds to them.
    ///
    /// # Safety
    ///
    /// The CPU has the instructions of `P`, and no other thread accesses these blocks.
    unsafe fn multiply<P: PartsProduct>(
        &self,
        [rows, columns]: [Range<usize>; 2],
        output: &Output,
        adds: bool,
    ) {
        let [row_count, column_count] = output.size;
        // SAFETY: as promised by the caller; a thread runs one task at a time.
        let _state = unsafe { TileState::<P>::new() };
        let mut edge = [0.0_f32; BLOCK * BLOCK];
        for column in columns {
            for row in rows.clone() {
                let left = self.pair(2 * row);
                let right = self.pair(self.left_panels + 2 * column);
                let (first_row, first_column) = (row * BLOCK, column * BLOCK);
                let height = BLOCK.min(row_count - first_row);
                let width = BLOCK.min(column_count - first_column);
                // SAFETY: the block is within the output, which the caller has for itself.
                unsafe {
                    let block = output.start.add(first_row * column_count + first_column);
                    if height == BLOCK && width == BLOCK {
                        P::block(self.steps, left, right, block, column_count, adds);
                        continue;
                    }
                    P::block(self.steps, left, right, edge.as_mut_ptr(), BLOCK, false);
                    for (i, sums) in edge.chunks_exact(BLOCK).take(height).enumerate() {
                        let line = block.add(i * column_count);
                        for (column, sum) in sums.iter().take(width).enumerate() {
                            let to = line.add(column);
                            to.write(if adds { to.read() + sum } else { *sum });
                        }
                    }
                }
            }
        }
    }
}
