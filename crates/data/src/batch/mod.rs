//! Which examples are learned from together, and in which order.
//!
//! The order is a function of the seed and the epoch and of nothing else, so a run that was
//! stopped goes on where it was.

mod windows;

use serde::{Deserialize, Serialize};
use zoo_spec::Draw;

pub use self::windows::{Window, Windows};
use crate::{DataError, Extent};

/// Examples that are shuffled and then sorted by length together: enough for rows of a batch to
/// be about the same length, few enough for batches to differ from epoch to epoch.
const POOL: usize = 8192;

/// Epochs whose batches are counted one by one.
const COUNTED: usize = 100;

/// When a batch is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchSize {
    /// At so many examples.
    Examples(usize),
    /// Before padding makes it more than so many tokens: rows times the longest.
    Tokens(usize),
}

/// Where in training a batch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Position {
    /// Times all examples have been gone through before.
    pub epoch: usize,
    /// Batches of this epoch before it.
    pub batch: usize,
}

/// How batches are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    size: BatchSize,
    seed: u64,
}

impl Batching {
    /// Batches of a size, in an order by a seed.
    pub fn new(size: BatchSize, seed: u64) -> Self {
        Self { size, seed }
    }

    /// Batches of examples that take this room.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] without examples, [`DataError::Range`] if a size is zero,
    /// [`DataError::TooLong`] if one example is more than a batch.
    pub fn plan(self, extents: Vec<Extent>) -> Result<BatchPlan, DataError> {
        if extents.is_empty() {
            return Err(DataError::Empty {
                what: "what batches are made of".to_owned(),
            });
        }
        match self.size {
            BatchSize::Examples(count) => DataError::at_least("batch size", 1, count)?,
            BatchSize::Tokens(longest) => {
                let tokens = |extent: &Extent| extent.width * extent.rows;
                if let Some(example) = extents.iter().position(|it| tokens(it) > longest) {
                    return Err(DataError::TooLong {
                        example,
                        length: tokens(&extents[example]),
                        longest,
                    });
                }
            }
        }
        Ok(BatchPlan {
            batching: self,
            extents,
        })
    }
}

/// Examples by their room, from which batches are made.
#[derive(Debug, Clone)]
pub struct BatchPlan {
    batching: Batching,
    extents: Vec<Extent>,
}

impl BatchPlan {
    /// The batches of an epoch, as places of examples: every example once.
    pub fn epoch(&self, epoch: usize) -> Vec<Vec<usize>> {
        let mut draw = Draw::new(self.batching.seed, "epoch", epoch as u64);
        let mut order: Vec<usize> = (0..self.extents.len()).collect();
        draw.shuffle(&mut order);
        // The end of a pool has the longest, the beginning of the next the shortest: a batch
        // has examples of one pool only.
        let pools = order.chunks_mut(POOL).flat_map(|pool| {
            pool.sort_by_key(|example| self.extents[*example]);
            self.cut(pool)
        });
        let mut batches: Vec<Vec<usize>> = pools.collect();
        draw.shuffle(&mut batches);
        batches
    }

    /// How many batches so many epochs are. By tokens, epochs differ a little in their batches:
    /// the first hundred are counted, and more are taken to be like them, since each takes
    /// as long as shuffling all examples.
    pub fn batches_of(&self, epochs: usize) -> usize {
        let counted = match self.batching.size {
            BatchSize::Examples(_) => epochs.min(1),
            BatchSize::Tokens(_) => epochs.min(COUNTED),
        };
        let batches: usize = (0..counted).map(|epoch| self.epoch(epoch).len()).sum();
        let all = batches as u128 * epochs as u128 / counted.max(1) as u128;
        all.try_into().unwrap_or(usize::MAX)
    }

    /// Every example once, from the shortest to the longest: to look at, not to learn from.
    pub fn in_order(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.extents.len()).collect();
        order.sort_by_key(|example| self.extents[*example]);
        self.cut(&order)
    }

    /// Tokens of a batch with its padding.
    pub fn padded(&self, batch: &[usize]) -> usize {
        let extents = || batch.iter().map(|example| self.extents[*example]);
        let width = extents().map(|extent| extent.width).max();
        width.unwrap_or(0) * extents().map(|extent| extent.rows).sum::<usize>()
    }

    fn cut(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut batches = vec![];
        let mut batch: Vec<usize> = vec![];
        let (mut rows, mut width) = (0, 0);
        for example in order {
            let extent = self.extents[*example];
            let full = match self.batching.size {
                BatchSize::Examples(count) => batch.len() == count,
                BatchSize::Tokens(most) => (rows + extent.rows) * extent.width.max(width) > most,
            };
            if full && !batch.is_empty() {
                batches.push(std::mem::take(&mut batch));
                (rows, width) = (0, 0);
            }
            batch.push(*example);
            rows += extent.rows;
            width = extent.width.max(width);
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        batches
    }
}

#[cfg(test)]
mod tests;
