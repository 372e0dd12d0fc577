//! Masks of the "fixed" pattern of Sparse Transformers: the summary columns of each block, and
//! block-causal masks over gathered summary columns.

use std::ops::Range;

use super::coverage::{Coverage, bits_from};

/// The last `summary` keys of each block of `block`; all of them if `summary >= block`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SummaryColumns {
    pub(crate) block: usize,
    pub(crate) summary: usize,
}

impl SummaryColumns {
    pub(super) fn coverage(self, keys: Range<usize>) -> Coverage {
        let block_of = |key: usize| key / self.block;
        let block_end = (block_of(keys.start) + 1).saturating_mul(self.block);
        let first_summary = block_end.saturating_sub(self.summary);
        let is_contiguous =
            self.summary >= self.block || block_of(keys.start) == block_of(keys.end - 1);
        Coverage::new(
            self.summary == 0 || first_summary >= keys.end,
            self.contains(keys.start) && is_contiguous,
        )
    }

    pub(super) fn contains(self, key: usize) -> bool {
        self.block - key % self.block <= self.summary
    }
}

/// A mask by blocks, aligned at the start: query `i` is in block `i / block_q` and key `j` in
/// block `j / block_k`. A query attends to whole blocks, never to its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockCausal {
    pub(crate) block_q: usize,
    pub(crate) block_k: usize,
    /// Whether a query attends to earlier blocks only, and not to all others.
    pub(crate) is_causal: bool,
}

impl BlockCausal {
    pub(super) fn coverage(self, queries: Range<usize>, keys: Range<usize>) -> Coverage {
        let blocks =
            |range: Range<usize>, size: usize| [range.start / size, (range.end - 1) / size];
        let [first, last] = blocks(queries, self.block_q);
        let [first_key, last_key] = blocks(keys, self.block_k);
        if self.is_causal {
            return Coverage::new(first_key >= last, last_key < first);
        }
        Coverage::new(
            [first, last, last_key] == [first_key; 3],
            last_key < first || first_key > last,
        )
    }

    /// A bit for each of up to 64 queries that attends to a key.
    pub(super) fn visible_queries(self, queries: Range<usize>, key: usize) -> u64 {
        let from_block =
            |block: usize| bits_from((block * self.block_q) as i64 - queries.start as i64);
        let block = key / self.block_k;
        let before = if self.is_causal {
            0
        } else {
            !from_block(block)
        };
        before | from_block(block + 1)
    }
}
