//! Packed keys and values of all heads.

use burn::tensor::bf16;
use rayon::prelude::*;
use zoo_kernels::cpu::bf16::pack::{Rows, is_finite, left_of_columns, left_of_rows, max_bits};
use zoo_kernels::cpu::bf16::{
    BLOCK, Bf16Set, Layout, PackedMemory, TILE, TILE_LINES, Tiles, packed_memory,
};

use super::super::call::{Call, Heads};
use super::super::kernel::KEYS;

/// Keys that a task packs, in whole blocks.
const KEYS_PER_TASK: usize = 1024;
/// Elements that a task checks.
const ELEMENTS_PER_TASK: usize = 1 << 16;

const _: () = assert!(KEYS_PER_TASK.is_multiple_of(BLOCK) && KEYS.is_multiple_of(BLOCK));

/// What of a key or value is a row of a left operand.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// The key: the inner dimension is the width of the head.
    Keys,
    /// An element of all keys: the inner dimension is the sequence.
    Elements,
}

/// The packed rows of all heads. In both forms the tiles of 32 keys are contiguous.
pub(super) struct Packed {
    memory: PackedMemory,
    lines_per_head: usize,
    /// Elements of a row, padded.
    wide: usize,
    layout: Layout,
}

impl Packed {
    /// `None` if an element is not finite.
    fn new(
        set: Bf16Set,
        call: &Call<'_, bf16>,
        rows: Heads<'_, bf16>,
        width: usize,
        form: Form,
    ) -> Option<Self> {
        let shape = call.shape;
        let wide = width.next_multiple_of(BLOCK);
        let layout = match form {
            Form::Keys => Layout::inner_first(width),
            Form::Elements => Layout::outer_first(width),
        };
        let lines = |keys: usize| keys.next_multiple_of(BLOCK) * wide / TILE * TILE_LINES;
        let lines_per_head = lines(shape.seq_k);
        let heads = shape.batch * shape.kv_heads;
        let mut memory = packed_memory(heads * lines_per_head / TILE_LINES);
        let pack = |head: usize, task: usize, to: *mut bf16| {
            let first = task * KEYS_PER_TASK;
            let end = shape.seq_k.min(first + KEYS_PER_TASK);
            let rows = &rows.head(head, shape.seq_k * width)[first * width..end * width];
            // SAFETY: the CPU supports the instruction set, and `to` has the lines of these keys.
            unsafe { pack(set, rows, width, form, to) }
        };
        let max = memory
            .par_chunks_mut(lines_per_head)
            .enumerate()
            .map(|(head, lines_of_head)| {
                lines_of_head
                    .par_chunks_mut(lines(KEYS_PER_TASK))
                    .enumerate()
                    .map(|(task, lines)| pack(head, task, lines.as_mut_ptr().cast()))
                    .max()
            })
            .max();
        is_finite(max.flatten().unwrap_or(0)).then_some(Self {
            memory,
            lines_per_head,
            wide,
            layout,
        })
    }

    /// The tiles of a head from a key on, a multiple of 32.
    #[inline(always)]
    pub(super) fn tiles(&self, head: usize, key: usize) -> Tiles {
        debug_assert!(key.is_multiple_of(BLOCK));
        let first = head * self.lines_per_head + key * self.wide / TILE * TILE_LINES;
        self.layout.tiles(self.memory[first..].as_ptr().cast())
    }
}

/// Packs some keys.
///
/// # Safety
///
/// The CPU supports the instruction set, and `to` is writable for the padded keys.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn pack(_set: Bf16Set, rows: &[bf16], width: usize, form: Form, to: *mut bf16) -> u16 {
    let rows = Rows::new(rows, width);
    // SAFETY: as promised by the caller.
    unsafe {
        match form {
            Form::Keys => left_of_rows(rows, Layout::inner_first(width), to),
            Form::Elements => left_of_columns(rows, Layout::outer_first(width), to),
        }
    }
}

/// Whether all elements are finite.
pub(super) fn is_all_finite(set: Bf16Set, elements: &[bf16]) -> bool {
    // SAFETY: the CPU supports the instruction set.
    let check = |elements: &[bf16]| unsafe { max_of(set, elements) };
    elements
        .par_chunks(ELEMENTS_PER_TASK)
        .all(|elements| is_finite(check(elements)))
}

/// [`max_bits`].
///
/// # Safety
///
/// The CPU supports the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
unsafe fn max_of(_set: Bf16Set, elements: &[bf16]) -> u16 {
    // SAFETY: as promised by the caller.
    unsafe { max_bits(elements) }
}

/// The keys and values of a call, packed for the forward pass: `scores = K · Qᵀ` and
/// `contextᵀ += Vᵀ · weights`.
pub(super) struct ForwardKeys {
    pub(super) key: Packed,
    pub(super) value: Packed,
}

impl ForwardKeys {
    /// `None` if an element is not finite.
    pub(super) fn pack(set: Bf16Set, call: &Call<'_, bf16>) -> Option<Self> {
        let [d_head, d_value] = call.shape.widths();
        Some(Self {
            key: Packed::new(set, call, call.key, d_head, Form::Keys)?,
            value: Packed::new(set, call, call.value, d_value, Form::Elements)?,
        })
    }
}

/// The keys and values of a call, packed for the backward pass: `scores = K · Qᵀ`,
/// `d_weights = V · dOᵀ` and `dQᵀ += Kᵀ · d_scores`.
pub(super) struct BackwardKeys {
    pub(super) key: Packed,
    pub(super) value: Packed,
    pub(super) key_elements: Packed,
}

impl BackwardKeys {
    /// `None` if an element is not finite.
    pub(super) fn pack(set: Bf16Set, call: &Call<'_, bf16>) -> Option<Self> {
        let [d_head, d_value] = call.shape.widths();
        Some(Self {
            key: Packed::new(set, call, call.key, d_head, Form::Keys)?,
            value: Packed::new(set, call, call.value, d_value, Form::Keys)?,
            key_elements: Packed::new(set, call, call.key, d_head, Form::Elements)?,
        })
    }
}

/// A buffer of `f32` as one of twice as many bf16.
pub(super) fn as_bf16(buffer: &mut [f32]) -> &mut [bf16] {
    let (start, len) = (buffer.as_mut_ptr().cast(), 2 * buffer.len());
    // SAFETY: the same memory, exclusively borrowed; both types are valid for any bits.
    unsafe { std::slice::from_raw_parts_mut(start, len) }
}
