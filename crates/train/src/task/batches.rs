//! Which examples are learned from at each step.
//!
//! Everything is a function of the seed and the position, so that a run that is gone on with
//! sees what it would have seen.

use zoo_config::{BatchBy, Config};
use zoo_data::{BatchPlan, BatchSize, Batching, DataError, Encoded, Extent, Position, Windows};

use super::{TextExample, TextWindow};
use crate::learn::{Checksum, PartFingerprint};
use crate::{Result, TrainError};

/// A part of the data as tokens: examples, or running text.
pub(crate) trait Ids {
    type Example;

    /// The batches to learn from, where `context` is the length of a window of running text.
    fn batches(
        self,
        config: &Config,
        context: usize,
    ) -> Result<Box<dyn Batches<Example = Self::Example>>>;

    /// The examples to evaluate with, at most so many.
    fn examples(self, context: usize, most: Option<usize>) -> Vec<Self::Example>;

    /// How long examples are; nothing for running text.
    fn extents(&self) -> Vec<Extent> {
        vec![]
    }

    /// What tells these data from others.
    fn fingerprint(&self) -> PartFingerprint;
}

impl<E: TextExample> Ids for Vec<E> {
    type Example = E;

    fn batches(self, config: &Config, _: usize) -> Result<Box<dyn Batches<Example = E>>> {
        let size = match config.training.batch_by {
            BatchBy::Examples => BatchSize::Examples(config.training.batch_size),
            BatchBy::Tokens => BatchSize::Tokens(config.training.batch_size),
        };
        match Bucketed::new(self, size, config.run.seed) {
            // With the keys of the config in it.
            Err(DataError::TooLong {
                length, longest, ..
            }) => Err(TrainError::Refused(format!(
                "an example has {length} tokens, padding counted, and a batch may have \
                 training.batch_size = {longest}: raise it, or leave long examples out by \
                 data.max_length"
            ))),
            batches => Ok(Box::new(batches?)),
        }
    }

    fn examples(mut self, _: usize, most: Option<usize>) -> Self {
        self.truncate(most.unwrap_or(usize::MAX));
        self
    }

    fn extents(&self) -> Vec<Extent> {
        self.iter().map(Encoded::extent).collect()
    }

    fn fingerprint(&self) -> PartFingerprint {
        let [mut inputs, mut targets] = [Checksum::default(), Checksum::default()];
        for example in self {
            example.add_to(&mut inputs, &mut targets);
        }
        PartFingerprint::new(self.len(), inputs, targets)
    }
}

impl Ids for Vec<u32> {
    type Example = TextWindow;

    fn batches(
        self,
        config: &Config,
        context: usize,
    ) -> Result<Box<dyn Batches<Example = TextWindow>>> {
        let size = config.training.batch_size;
        let rows = match config.training.batch_by {
            BatchBy::Examples => size,
            BatchBy::Tokens => (size / context).max(1),
        };
        Ok(Box::new(Pieces::new(self, context, rows, config.run.seed)?))
    }

    fn examples(self, context: usize, most: Option<usize>) -> Vec<TextWindow> {
        let windows = Windows::new(context, 1, 0);
        let windows = windows.all(&self).take(most.unwrap_or(usize::MAX));
        windows.map(TextWindow::from).collect()
    }

    fn fingerprint(&self) -> PartFingerprint {
        let mut inputs = Checksum::default();
        // In pieces: the bytes of all of it would take as much memory again.
        self.chunks(1 << 16).for_each(|ids| inputs.add(ids));
        PartFingerprint::new(self.len(), inputs, Checksum::default())
    }
}

/// Batches without an end.
pub(crate) trait Batches {
    type Example;

    fn next(&mut self) -> Vec<Self::Example>;

    /// Where that will be.
    fn position(&self) -> Position;

    fn go_to(&mut self, position: Position);

    /// How many batches so many times through all examples are.
    fn batches_of(&self, epochs: usize) -> usize;
}

/// Batches of examples of about the same length.
struct Bucketed<E> {
    plan: BatchPlan,
    examples: Vec<E>,
    position: Position,
    /// Those of the epoch that the position is in.
    batches: Vec<Vec<usize>>,
}

impl<E: Encoded> Bucketed<E> {
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

impl<E: Clone> Batches for Bucketed<E> {
    type Example = E;

    fn next(&mut self) -> Vec<E> {
        let places = &self.batches[self.position.batch];
        let batch = places.iter().map(|at| self.examples[*at].clone()).collect();
        let next = Position {
            batch: self.position.batch + 1,
            ..self.position
        };
        self.go_to(next);
        batch
    }

    fn position(&self) -> Position {
        self.position
    }

    fn go_to(&mut self, position: Position) {
        if position.epoch != self.position.epoch {
            self.batches = self.plan.epoch(position.epoch);
        }
        self.position = position;
        // Also of fewer examples than there were, an epoch is over.
        if position.batch >= self.batches.len() {
            self.go_to(Position {
                epoch: position.epoch + 1,
                batch: 0,
            });
        }
    }

    fn batches_of(&self, epochs: usize) -> usize {
        self.plan.batches_of(epochs)
    }
}

/// Pieces of running text, from anywhere in it.
struct Pieces {
    windows: Windows,
    text: Vec<u32>,
    /// Tokens of a batch.
    tokens: usize,
    position: Position,
}

impl Pieces {
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

impl Batches for Pieces {
    type Example = TextWindow;

    fn next(&mut self) -> Vec<TextWindow> {
        let windows = self.windows.at(self.position.batch, &self.text);
        self.position.batch += 1;
        windows.into_iter().map(TextWindow::from).collect()
    }

    fn position(&self) -> Position {
        self.position
    }

    fn go_to(&mut self, position: Position) {
        self.position = position;
    }

    fn batches_of(&self, epochs: usize) -> usize {
        self.text.len().saturating_mul(epochs).div_ceil(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use zoo_data::LabelledIds;

    use super::*;

    fn examples() -> Vec<LabelledIds> {
        let example = |at: usize| LabelledIds {
            label: at,
            ids: vec![4; 1 + at % 7],
        };
        (0..50).map(example).collect()
    }

    #[test]
    fn going_on_gives_what_would_have_come() {
        let new = || Bucketed::new(examples(), BatchSize::Tokens(30), 3).unwrap();
        let mut whole = new();
        let batches: Vec<_> = (0..40).map(|_| (whole.position(), whole.next())).collect();
        assert!(batches[39].0.epoch > 1, "more than one time through");
        for (position, batch) in &batches {
            let mut resumed = new();
            resumed.go_to(*position);
            assert_eq!(&resumed.next(), batch);
        }
    }

    #[test]
    fn an_epoch_of_fewer_examples_is_over() {
        let few = examples()[..10].to_vec();
        let mut batches = Bucketed::new(few, BatchSize::Examples(2), 3).unwrap();
        batches.go_to(Position { epoch: 1, batch: 7 });
        assert_eq!(batches.position(), Position { epoch: 2, batch: 0 });
        assert_eq!(batches.next().len(), 2);
    }

    #[test]
    fn epochs_are_counted_in_batches() {
        let mut batches = Bucketed::new(examples(), BatchSize::Tokens(30), 3).unwrap();
        for _ in 0..batches.batches_of(2) {
            batches.next();
        }
        assert_eq!(batches.position(), Position { epoch: 2, batch: 0 });
    }

    #[test]
    fn pieces_are_a_function_of_the_position() {
        let text: Vec<u32> = (0..1000).collect();
        let new = || Pieces::new(text.clone(), 8, 3, 5).unwrap();
        let mut whole = new();
        let first = whole.next();
        let second = whole.next();
        assert_ne!(first, second);
        let mut resumed = new();
        resumed.go_to(Position { epoch: 0, batch: 1 });
        assert_eq!(resumed.next(), second);
        assert_eq!(whole.batches_of(2), 84);
    }
}
