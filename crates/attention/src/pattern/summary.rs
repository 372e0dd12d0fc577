//! The last keys of each block: seen by everyone where they are, and, brought together, by
//! the queries of other blocks.

use std::ops::Range;

use super::coverage::{Coverage, bits_from};

/// The last `summary` keys of each block of `block`; all of them, if it has no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Summaries {
    pub(crate) block: usize,
    pub(crate) summary: usize,
}

impl Summaries {
    /// What anybody sees of some keys.
    pub(super) fn of(self, keys: Range<usize>) -> Coverage {
        let block_of = |key: usize| key / self.block;
        let last_of_block = (block_of(keys.start) + 1).saturating_mul(self.block);
        let first_summary = last_of_block.saturating_sub(self.summary);
        let is_one_stretch =
            self.summary >= self.block || block_of(keys.start) == block_of(keys.end - 1);
        Coverage::by(
            self.summary == 0 || first_summary >= keys.end,
            self.has(keys.start) && is_one_stretch,
        )
    }

    pub(super) fn has(self, key: usize) -> bool {
        self.block - key % self.block <= self.summary
    }
}

/// Queries in steps of `rise` over keys in steps of `run`, the first of both level: query
/// `i` stands on step `i / rise`, key `j` on step `j / run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stairs {
    pub(crate) rise: usize,
    pub(crate) run: usize,
    pub(crate) seen: Steps,
}

/// Which steps a query sees from its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Steps {
    /// Those before.
    Before,
    /// All but its own.
    Others,
}

impl Stairs {
    pub(super) fn tile(self, queries: Range<usize>, keys: Range<usize>) -> Coverage {
        let steps = |range: Range<usize>, size: usize| [range.start / size, (range.end - 1) / size];
        let [first, last] = steps(queries, self.rise);
        let [first_key, last_key] = steps(keys, self.run);
        match self.seen {
            Steps::Before => Coverage::by(first_key >= last, last_key < first),
            Steps::Others => Coverage::by(
                [first, last, last_key] == [first_key; 3],
                last_key < first || first_key > last,
            ),
        }
    }

    /// A bit for each of up to 64 queries that sees a key.
    pub(super) fn seen(self, queries: Range<usize>, key: usize) -> u64 {
        let from_step = |step: usize| bits_from((step * self.rise) as i64 - queries.start as i64);
        let step = key / self.run;
        let after = from_step(step + 1);
        match self.seen {
            Steps::Before => after,
            Steps::Others => after | !from_step(step),
        }
    }
}
