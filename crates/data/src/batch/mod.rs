//! Batches of examples, sorted by length and shuffled.
//!
//! The order is a function of the seed and the epoch only, so a resumed run continues with the same
//! batches.

mod windows;

use serde::{Deserialize, Serialize};
use zoo_spec::SplitMix64;

pub use self::windows::{Window, Windows};
use crate::{DataError, Extent};

/// Size of the pools in which shuffled examples are sorted by length: large enough for batches with
/// little padding, small enough for batches that differ from epoch to epoch.
const POOL: usize = 8192;

/// Epochs whose batches are counted exactly; more are extrapolated.
const MAX_COUNTED_EPOCHS: usize = 100;

/// Size limit of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BatchSize {
    /// Number of examples.
    Examples(usize),
    /// Number of tokens including padding: rows times the longest row.
    Tokens(usize),
}

/// Position of a batch in training.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Position {
    /// Epoch, counted from 0.
    pub epoch: usize,
    /// Batch of the epoch, counted from 0.
    pub batch: usize,
}

/// Batching options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batching {
    size: BatchSize,
    seed: u64,
}

impl Batching {
    /// Batches of `size`, shuffled by `seed`.
    pub fn new(size: BatchSize, seed: u64) -> Self {
        Self { size, seed }
    }

    /// Plans the batches of examples with these sizes.
    ///
    /// # Errors
    ///
    /// [`DataError::Empty`] without examples, [`DataError::Range`] if the batch size is zero,
    /// [`DataError::TooLong`] if an example exceeds a batch.
    pub fn plan(self, extents: Vec<Extent>) -> Result<BatchPlan, DataError> {
        if extents.is_empty() {
            return Err(DataError::empty("the data to batch"));
        }
        match self.size {
            BatchSize::Examples(count) => DataError::at_least("batch size", 1, count)?,
            BatchSize::Tokens(max) => {
                for (example, extent) in extents.iter().enumerate() {
                    let length = extent.width * extent.rows;
                    if length > max {
                        return Err(DataError::TooLong {
                            example,
                            length,
                            max,
                        });
                    }
                }
            }
        }
        let batching = self;
        Ok(BatchPlan { batching, extents })
    }
}

/// Sizes of all examples, from which batches are formed.
#[derive(Debug, Clone)]
pub struct BatchPlan {
    batching: Batching,
    extents: Vec<Extent>,
}

impl BatchPlan {
    /// Batches of an epoch as indices of examples. Every example occurs once.
    pub fn epoch(&self, epoch: usize) -> Vec<Vec<usize>> {
        let mut rng = SplitMix64::new(self.batching.seed, "epoch", epoch as u64);
        let mut order: Vec<usize> = (0..self.extents.len()).collect();
        rng.shuffle(&mut order);
        // A batch never spans two pools: the longest examples of one would meet the shortest of the
        // next.
        let pools = order.chunks_mut(POOL).flat_map(|pool| {
            pool.sort_by_key(|example| self.extents[*example]);
            self.chunk(pool)
        });
        let mut batches: Vec<Vec<usize>> = pools.collect();
        rng.shuffle(&mut batches);
        batches
    }

    /// Total number of batches in `epochs` epochs. With [`BatchSize::Tokens`], epochs differ
    /// slightly: the first 100 are counted, and more are extrapolated from them, since counting an
    /// epoch takes as long as shuffling all examples.
    pub fn num_batches(&self, epochs: usize) -> usize {
        let counted = match self.batching.size {
            BatchSize::Examples(_) => epochs.min(1),
            BatchSize::Tokens(_) => epochs.min(MAX_COUNTED_EPOCHS),
        };
        let batches: usize = (0..counted).map(|epoch| self.epoch(epoch).len()).sum();
        let all = batches as u128 * epochs as u128 / counted.max(1) as u128;
        all.try_into().unwrap_or(usize::MAX)
    }

    /// Batches from the shortest to the longest example, for evaluation. Every example occurs once.
    pub fn sorted_batches(&self) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.extents.len()).collect();
        order.sort_by_key(|example| self.extents[*example]);
        self.chunk(&order)
    }

    /// Number of tokens of a batch, including padding.
    pub fn padded_tokens(&self, batch: &[usize]) -> usize {
        let extents = || batch.iter().map(|example| self.extents[*example]);
        let width = extents().map(|extent| extent.width).max();
        width.unwrap_or(0) * extents().map(|extent| extent.rows).sum::<usize>()
    }

    fn chunk(&self, order: &[usize]) -> Vec<Vec<usize>> {
        let mut batches = vec![];
        let mut batch: Vec<usize> = vec![];
        let (mut rows, mut width) = (0, 0);
        for example in order {
            let extent = self.extents[*example];
            let full = match self.batching.size {
                BatchSize::Examples(count) => batch.len() == count,
                BatchSize::Tokens(max) => (rows + extent.rows) * extent.width.max(width) > max,
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
