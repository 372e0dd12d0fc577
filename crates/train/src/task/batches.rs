//! Training batches.
//!
//! They are a function of the seed and the position, so that a resumed run continues with the same
//! batches as an uninterrupted one.

use zoo_config::{BatchBy, Config};
use zoo_data::{BatchPlan, BatchSize, Batching, DataError, Encoded, Extent, Position, Windows};

use super::{Example, TextWindow};
use crate::training::{Checksum, SplitFingerprint};
use crate::{Result, TrainError};

/// A tokenized split: examples, or running text.
pub(crate) trait TokenData {
    type Example;

    /// Training batches; `context` is the window length of running text.
    fn batches(self, config: &Config, context: usize) -> Result<BoxedBatches<Self::Example>>;

    /// Evaluation examples, at most `max`.
    fn examples(self, context: usize, max: Option<usize>) -> Vec<Self::Example>;

    /// The lengths of the examples; empty for running text.
    fn extents(&self) -> Vec<Extent> {
        vec![]
    }

    fn fingerprint(&self) -> SplitFingerprint;
}

impl<E: Example> TokenData for Vec<E> {
    type Example = E;

    fn batches(self, config: &Config, _: usize) -> Result<BoxedBatches<E>> {
        let size = match config.training.batch_by {
            BatchBy::Examples => BatchSize::Examples(config.training.batch_size),
            BatchBy::Tokens => BatchSize::Tokens(config.training.batch_size),
        };
        match BucketedBatches::new(self, size, config.run.seed) {
            // Names the config keys.
            Err(DataError::TooLong { length, max, .. }) => Err(TrainError::Refused(format!(
                "an example has {length} tokens including padding, but training.batch_size = {max}\n  \
                 help: raise it, or drop long examples with data.max_length"
            ))),
            batches => Ok(Box::new(batches?)),
        }
    }

    fn examples(mut self, _: usize, max: Option<usize>) -> Self {
        self.truncate(max.unwrap_or(usize::MAX));
        self
    }

    fn extents(&self) -> Vec<Extent> {
        self.iter().map(Encoded::extent).collect()
    }

    fn fingerprint(&self) -> SplitFingerprint {
        let [mut inputs, mut targets] = [Checksum::default(), Checksum::default()];
        for example in self {
            example.update_checksums(&mut inputs, &mut targets);
        }
        SplitFingerprint::new(self.len(), inputs, targets)
    }
}

impl TokenData for Vec<u32> {
    type Example = TextWindow;

    fn batches(self, config: &Config, context: usize) -> Result<BoxedBatches<TextWindow>> {
        let size = config.training.batch_size;
        let rows = match config.training.batch_by {
            BatchBy::Examples => size,
            BatchBy::Tokens => (size / context).max(1),
        };
        let batches = WindowBatches::new(self, context, rows, config.run.seed)?;
        Ok(Box::new(batches))
    }

    fn examples(self, context: usize, max: Option<usize>) -> Vec<TextWindow> {
        let windows = Windows::new(context, 1, 0);
        let windows = windows.consecutive(&self).take(max.unwrap_or(usize::MAX));
        windows.map(TextWindow::from).collect()
    }

    fn fingerprint(&self) -> SplitFingerprint {
        let mut inputs = Checksum::default();
        // In chunks: the bytes of the whole text would double the memory.
        self.chunks(1 << 16).for_each(|ids| inputs.add(ids));
        SplitFingerprint::new(self.len(), inputs, Checksum::default())
    }
}

pub(crate) type BoxedBatches<E> = Box<dyn Batches<Example = E>>;

/// An endless stream of batches.
pub(crate) trait Batches {
    type Example;

    fn next(&mut self) -> Vec<Self::Example>;

    /// The position of the next batch.
    fn position(&self) -> Position;

    fn seek(&mut self, position: Position);

    fn num_batches(&self, epochs: usize) -> usize;
}

struct BucketedBatches<E> {
    plan: BatchPlan,
    examples: Vec<E>,
    position: Position,
    /// Example indices of the batches of the current epoch.
    batches: Vec<Vec<usize>>,
}

impl<E: Encoded> BucketedBatches<E> {
    fn new(examples: Vec<E>, size: BatchSize, seed: u64) -> Result<Self, DataError> {
        let extents = examples.iter().map(Encoded::extent).collect();
        let plan = Batching::new(size, seed).plan(extents)?;
        Ok(Self {
            batches: plan.epoch(0),
            plan,
            examples,
            position: Position::default(),
        })
    }
}

impl<E: Clone> Batches for BucketedBatches<E> {
    type Example = E;

    fn next(&mut self) -> Vec<E> {
        let indices = &self.batches[self.position.batch];
        let batch = indices.iter().map(|i| self.examples[*i].clone()).collect();
        let mut next = self.position;
        next.batch += 1;
        self.seek(next);
        batch
    }

    fn position(&self) -> Position {
        self.position
    }

    fn seek(&mut self, position: Position) {
        if position.epoch != self.position.epoch {
            self.batches = self.plan.epoch(position.epoch);
        }
        self.position = position;
        // Also past the end: a resumed run may have fewer examples.
        if position.batch >= self.batches.len() {
            self.seek(Position {
                epoch: position.epoch + 1,
                batch: 0,
            });
        }
    }

    fn num_batches(&self, epochs: usize) -> usize {
        self.plan.num_batches(epochs)
    }
}

/// Random windows of running text.
struct WindowBatches {
    windows: Windows,
    text: Vec<u32>,
    tokens: usize,
    position: Position,
}

impl WindowBatches {
    fn new(text: Vec<u32>, context: usize, rows: usize, seed: u64) -> Result<Self, DataError> {
        let windows = Windows::new(context, rows, seed);
        windows.check("training", &text)?;
        Ok(Self {
            windows,
            text,
            tokens: rows * context,
            position: Position::default(),
        })
    }
}

impl Batches for WindowBatches {
    type Example = TextWindow;

    fn next(&mut self) -> Vec<TextWindow> {
        let windows = self.windows.batch(self.position.batch, &self.text);
        self.position.batch += 1;
        windows.into_iter().map(TextWindow::from).collect()
    }

    fn position(&self) -> Position {
        self.position
    }

    fn seek(&mut self, position: Position) {
        self.position = position;
    }

    fn num_batches(&self, epochs: usize) -> usize {
        self.text.len().saturating_mul(epochs).div_ceil(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::LabelledIds;

    use super::*;

    fn examples() -> Vec<LabelledIds> {
        let example = |index: usize| LabelledIds {
            label: index,
            ids: vec![4; 1 + index % 7],
        };
        (0..50).map(example).collect()
    }

    #[test]
    fn seeking_continues_the_same_batches() {
        let new = || BucketedBatches::new(examples(), BatchSize::Tokens(30), 3).unwrap();
        let mut uninterrupted = new();
        let batches: Vec<_> = (0..40)
            .map(|_| (uninterrupted.position(), uninterrupted.next()))
            .collect();
        assert!(batches[39].0.epoch > 1, "more than one epoch");
        for (position, batch) in &batches {
            let mut resumed = new();
            resumed.seek(*position);
            assert_eq!(&resumed.next(), batch);
        }
    }

    #[test]
    fn the_end_of_an_epoch_starts_the_next_one() {
        let few = examples()[..10].to_vec();
        let mut batches = BucketedBatches::new(few, BatchSize::Examples(2), 3).unwrap();
        batches.seek(Position { epoch: 1, batch: 7 });
        assert_eq!(batches.position(), Position { epoch: 2, batch: 0 });
        assert_eq!(batches.next().len(), 2);

        let mut batches = BucketedBatches::new(examples(), BatchSize::Tokens(30), 3).unwrap();
        for _ in 0..batches.num_batches(2) {
            batches.next();
        }
        assert_eq!(batches.position(), Position { epoch: 2, batch: 0 });
    }

    #[test]
    fn windows_are_a_function_of_the_position() {
        let text: Vec<u32> = (0..1000).collect();
        let new = || WindowBatches::new(text.clone(), 8, 3, 5).unwrap();
        let mut uninterrupted = new();
        let first = uninterrupted.next();
        let second = uninterrupted.next();
        assert_ne!(first, second);
        let mut resumed = new();
        resumed.seek(Position { epoch: 0, batch: 1 });
        assert_eq!(resumed.next(), second);
        assert_eq!(uninterrupted.num_batches(2), 84);
    }
}
