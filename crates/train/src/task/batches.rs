//! Which examples are learned from at each step.
//!
//! Everything is a function of the seed and the position, so that a run that is gone on with
//! sees what it would have seen.

use zoo_config::{BatchBy, Config};
use zoo_data::{BatchPlan, BatchSize, Batching, DataError, Encoded, Position, Windows};

use super::TextWindow;
use crate::TrainError;

/// Batches without an end.
pub trait Batches {
    /// What they are made of.
    type Example;

    /// The batch that comes next.
    fn next(&mut self) -> Vec<Self::Example>;

    /// Where that will be.
    fn position(&self) -> Position;

    /// Goes to where a run was.
    fn go_to(&mut self, position: Position);

    /// How many batches so many times through all examples are.
    fn batches_of(&self, epochs: usize) -> usize;
}

/// Batches of examples of about the same length.
pub(crate) struct Bucketed<E> {
    plan: BatchPlan,
    examples: Vec<E>,
    position: Position,
    /// Those of the epoch that the position is in.
    batches: Vec<Vec<usize>>,
}

impl<E: Encoded> Bucketed<E> {
    /// Batches of the size that a config says.
    pub(crate) fn of(config: &Config, examples: Vec<E>) -> Result<Self, TrainError> {
        let size = match config.training.batch_by {
            BatchBy::Examples => BatchSize::Examples(config.training.batch_size),
            BatchBy::Tokens => BatchSize::Tokens(config.training.batch_size),
        };
        Self::new(examples, size, config.run.seed).map_err(|error| match error {
            // With the keys of the config in it.
            DataError::TooLong {
                length, longest, ..
            } => TrainError::Refused(format!(
                "an example has {length} tokens, padding counted, and a batch may have \
                 training.batch_size = {longest}: raise it, or leave long examples out by \
                 data.max_length"
            )),
            other => other.into(),
        })
    }

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
pub(crate) struct Pieces {
    windows: Windows,
    text: Vec<u32>,
    /// Tokens of a batch.
    tokens: usize,
    position: Position,
}

impl Pieces {
    /// Windows of this length, as many in a batch as a config says.
    pub(crate) fn of(config: &Config, text: Vec<u32>, context: usize) -> Result<Self, DataError> {
        let size = config.training.batch_size;
        let rows = match config.training.batch_by {
            BatchBy::Examples => size,
            BatchBy::Tokens => (size / context).max(1),
        };
        Self::new(text, context, rows, config.run.seed)
    }

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
