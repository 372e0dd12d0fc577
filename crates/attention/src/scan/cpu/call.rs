//! Arguments of the CPU kernels, and the chunks of a call.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use zoo_kernels::cpu::InstructionSet;

use super::CHUNK;
use super::activation::Elementwise;
use super::matmul::STRIP;
use crate::AttentionShape;
use crate::scan::call::{ScanMap, padded};

/// A call of the forward or the backward pass.
pub(crate) struct Call<'a> {
    pub(crate) shape: AttentionShape,
    pub(crate) is_causal: bool,
    pub(crate) map: &'a ScanMap,
    /// The factors of queries and keys.
    pub(crate) scale: [f32; 2],
    /// `[batch, heads, seq_q, d_head]`
    pub(crate) query: Heads<'a>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub(crate) key: Heads<'a>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub(crate) value: Heads<'a>,
    /// `[batch or 1, seq_k]`: not zero for masked keys.
    pub(crate) masked: Option<&'a [u8]>,
    /// An instruction set of the processor.
    pub(crate) set: InstructionSet,
    /// Segments of chunks that are computed in parallel.
    pub(crate) segments: usize,
}

/// Rows of heads of examples, in memory that is not written while a slice of it is in use.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    start: *const f32,
    len: usize,
    /// Strides of examples, heads and rows.
    strides: [usize; 3],
    width: usize,
    memory: PhantomData<&'a [f32]>,
}

// SAFETY: the memory is only read, as by a shared slice.
unsafe impl Send for Heads<'_> {}
// SAFETY: as above.
unsafe impl Sync for Heads<'_> {}

impl<'a> Heads<'a> {
    pub(crate) fn new(values: &'a [f32], strides: [usize; 3], width: usize) -> Self {
        Self {
            start: values.as_ptr(),
            len: values.len(),
            strides,
            width,
            memory: PhantomData,
        }
    }

    /// Row stride.
    pub(in crate::scan) fn stride(&self) -> usize {
        self.strides[2]
    }

    /// From the first element of some rows to the last.
    pub(in crate::scan) fn rows(&self, [example, head]: [usize; 2], rows: &Range<usize>) -> &[f32] {
        if rows.is_empty() {
            return &[];
        }
        let [by_example, by_head, by_row] = self.strides;
        let first = example * by_example + head * by_head + rows.start * by_row;
        let len = (rows.len() - 1) * by_row + self.width;
        assert!(first + len <= self.len, "rows {rows:?} are out of bounds");
        // SAFETY: within the memory, which is not written to meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.add(first), len) }
    }
}

/// Memory that tasks write to, each to rows of its own. It need not be initialised, because
/// every element is overwritten.
pub(in crate::scan) struct Output<'a> {
    start: *mut f32,
    len: usize,
    memory: PhantomData<&'a mut [MaybeUninit<f32>]>,
}

// SAFETY: tasks write to different rows.
unsafe impl Send for Output<'_> {}
// SAFETY: as above.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    pub(in crate::scan) fn new(values: &'a mut [MaybeUninit<f32>]) -> Self {
        Self {
            start: values.as_mut_ptr().cast(),
            len: values.len(),
            memory: PhantomData,
        }
    }

    /// Whether there is nothing to write.
    pub(in crate::scan) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Contiguous rows of `width` elements.
    ///
    /// # Safety
    ///
    /// No other slice of these rows is in use.
    #[allow(clippy::mut_from_ref)] // the contract of the function
    pub(in crate::scan) unsafe fn rows(
        &self,
        rows: Range<usize>,
        width: usize,
    ) -> &mut [MaybeUninit<f32>] {
        assert!(
            rows.end * width <= self.len,
            "rows {rows:?} are out of bounds"
        );
        // SAFETY: within the memory, and exclusive as promised by the caller.
        unsafe {
            let start = self.start.add(rows.start * width).cast();
            std::slice::from_raw_parts_mut(start, rows.len() * width)
        }
    }

    /// The same memory as rows to read, of contiguous heads.
    ///
    /// # Safety
    ///
    /// Rows that are read are initialised, and not written to while a slice of them is in use.
    pub(super) unsafe fn as_heads(&self, [heads, seq, width]: [usize; 3]) -> Heads<'a> {
        Heads {
            start: self.start,
            len: self.len,
            strides: [heads * seq * width, seq * width, width],
            width,
            memory: PhantomData,
        }
    }
}

/// Widths of a call. `wide_*` are rounded up to whole registers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    pub(super) d_head: usize,
    pub(super) d_value: usize,
    pub(super) features: usize,
    /// `d_value`, and one more for the sum of weights if contexts are normalised.
    pub(super) sums: usize,
    pub(super) wide_head: usize,
    pub(super) wide_value: usize,
    pub(super) wide_features: usize,
    pub(super) wide_sums: usize,
}

impl Call<'_> {
    pub(super) fn widths(&self) -> Widths {
        let AttentionShape {
            d_head, d_value, ..
        } = self.shape;
        let features = match self.map {
            ScanMap::Elu1 | ScanMap::Relu | ScanMap::Features | ScanMap::Decay(_) => d_head,
            ScanMap::Exponential(directions) => directions.count,
        };
        let sums = d_value + usize::from(self.is_normalised());
        Widths {
            d_head,
            d_value,
            features,
            sums,
            wide_head: padded(d_head),
            wide_value: padded(d_value),
            wide_features: padded(features),
            // Rows of values and of their gradients are loaded up to `wide_value`.
            wide_sums: padded(sums),
        }
    }

    /// Whether contexts are weighted means.
    pub(super) fn is_normalised(&self) -> bool {
        self.map.is_normalised()
    }

    pub(super) fn elementwise(&self) -> Option<Elementwise> {
        match self.map {
            ScanMap::Elu1 => Some(Elementwise::Elu1),
            ScanMap::Relu => Some(Elementwise::Relu),
            ScanMap::Features | ScanMap::Decay(_) => Some(Elementwise::Identity),
            ScanMap::Exponential(_) => None,
        }
    }

    /// The decay of a key/value head.
    pub(super) fn decay(&self, head: Head) -> Option<f64> {
        match self.map {
            ScanMap::Decay(decays) => Some(decays[head.kv_head]),
            ScanMap::Elu1 | ScanMap::Relu | ScanMap::Exponential(_) | ScanMap::Features => None,
        }
    }

    /// Whether a key is masked for all queries.
    pub(super) fn is_masked(&self, head: Head, key: usize) -> bool {
        self.masked.is_some_and(|masked| {
            let seq_k = self.shape.seq_k;
            let example = if masked.len() == seq_k {
                0
            } else {
                head.example
            };
            masked[example * seq_k + key] != 0
        })
    }

    /// The chunks of a head, in the order of the recurrence.
    pub(super) fn chunks(&self) -> Vec<Chunk> {
        let AttentionShape { seq_q, seq_k, .. } = self.shape;
        // Queries and keys are aligned at the end.
        let pairs = if self.is_causal { seq_q.min(seq_k) } else { 0 };
        let (queries_only, keys_only) = (seq_q - pairs, seq_k - pairs);
        let ranges = |length: usize| {
            (0..length)
                .step_by(CHUNK)
                .map(move |start| start..length.min(start + CHUNK))
        };
        let keys = ranges(keys_only).map(|keys| Chunk {
            keys,
            queries: 0..0,
        });
        let queries = ranges(queries_only).map(|queries| Chunk {
            keys: 0..0,
            queries,
        });
        let both = ranges(pairs).map(|pairs| Chunk {
            keys: keys_only + pairs.start..keys_only + pairs.end,
            queries: queries_only + pairs.start..queries_only + pairs.end,
        });
        // At most one of the first two is not empty if the order is causal: queries before the
        // first key then read an empty state.
        keys.chain(queries).chain(both).collect()
    }
}

/// Initialised memory as an [`Output`].
pub(crate) fn initialised(values: &mut [f32]) -> &mut [MaybeUninit<f32>] {
    // SAFETY: only elements are written through an `Output`, never uninitialised memory.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), values.len()) }
}

/// One key/value head of one example.
#[derive(Debug, Clone, Copy)]
pub(in crate::scan) struct Head {
    pub(in crate::scan) example: usize,
    pub(in crate::scan) kv_head: usize,
}

impl Head {
    pub(in crate::scan) fn new(index: usize, shape: &AttentionShape) -> Self {
        Self {
            example: index / shape.kv_heads,
            kv_head: index % shape.kv_heads,
        }
    }

    /// The query heads that share it.
    pub(in crate::scan) fn query_heads(self, shape: &AttentionShape) -> Range<usize> {
        let group = shape.group();
        self.kv_head * group..(self.kv_head + 1) * group
    }

    /// Rows of a tensor of keys, counted over all heads.
    pub(in crate::scan) fn key_rows(
        self,
        shape: &AttentionShape,
        keys: &Range<usize>,
    ) -> Range<usize> {
        let first = (self.example * shape.kv_heads + self.kv_head) * shape.seq_k;
        first + keys.start..first + keys.end
    }

    /// Rows of a tensor of queries, likewise.
    pub(in crate::scan) fn query_rows(
        self,
        shape: &AttentionShape,
        query_head: usize,
        queries: &Range<usize>,
    ) -> Range<usize> {
        let first = (self.example * shape.heads + query_head) * shape.seq_q;
        first + queries.start..first + queries.end
    }
}

/// Up to [`CHUNK`] keys that are added to the state, and queries that read it. If there are both,
/// query `i` also attends to the keys up to the `i`-th.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) keys: Range<usize>,
    pub(super) queries: Range<usize>,
}

impl Chunk {
    /// Positions by which the state decays.
    pub(super) fn len(&self) -> usize {
        self.keys.len().max(self.queries.len())
    }

    pub(super) fn has_pairs(&self) -> bool {
        !self.keys.is_empty() && !self.queries.is_empty()
    }
}

/// Powers of a head's decay.
pub(super) struct Decays {
    /// `γ^(i + 1)`
    pub(super) ascending: [f32; CHUNK],
    /// `γ^(CHUNK - 1 - i)`, padded with zeros to whole strips of any row of scores.
    pub(super) descending: [f32; CHUNK + STRIP],
}

impl Decays {
    pub(super) fn new(decay: f64) -> Self {
        let power = |exponent: usize| decay.powi(exponent as i32) as f32;
        Self {
            ascending: std::array::from_fn(|i| power(i + 1)),
            descending: std::array::from_fn(|i| match i {
                0..CHUNK => power(CHUNK - 1 - i),
                _ => 0.0,
            }),
        }
    }

    /// Decays from the keys of a chunk to its end.
    pub(super) fn to_end(&self, count: usize) -> &[f32] {
        &self.descending[CHUNK - count..CHUNK]
    }
}
