//! Random features that are drawn anew from time to time while a model learns, so that it
//! does not learn the errors of one draw.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{Module, RunningState};
use burn::tensor::{Device, Tensor, TensorData};

use super::{FeatureMap, RandomFeatures};
use crate::counter::mix;
use crate::seed::pass_number;

/// The random features in use. They are part of a module's record, without being learned:
/// what was saved computes the same when it is loaded.
///
/// Which come next follows from those in use, and when, from the number of the training pass
/// if [`training_pass`](crate::training_pass) said it. Otherwise passes are counted from the
/// last draw, or from when the module was made or loaded.
#[derive(Module, Debug)]
pub struct RedrawnFeatures {
    /// `[count, d_head]`
    directions: RunningState<Tensor<2>>,
    interval: usize,
    /// Clones share it, as they share what was drawn.
    #[module(skip)]
    passes: Arc<Mutex<Passes>>,
}

/// How far training is.
#[derive(Debug, Clone, Default)]
struct Passes {
    /// Those since the last draw.
    counted: usize,
    /// The number of the last one, if it had one: a pass may come through a layer twice.
    last: Option<u64>,
}

impl Passes {
    /// Takes one more, and says whether it is time to draw others for it.
    fn are_due(&mut self, number: Option<u64>, interval: usize) -> bool {
        let is_due = match number {
            Some(number) => {
                self.last != Some(number) && number > 0 && number.is_multiple_of(interval as u64)
            }
            None => self.counted >= interval,
        };
        self.last = number;
        self.counted = 1 + if is_due { 0 } else { self.counted };
        is_due
    }
}

impl RedrawnFeatures {
    /// Begins with `first`, for heads of `d_head` numbers, and draws others after every
    /// `interval` training passes.
    pub fn new(
        first: RandomFeatures,
        interval: NonZeroUsize,
        d_head: usize,
        device: &Device,
    ) -> Self {
        let directions = TensorData::new(first.directions(d_head), [first.count, d_head]);
        Self {
            directions: RunningState::new(Tensor::from_data(directions, device)),
            interval: interval.get(),
            passes: Arc::default(),
        }
    }

    /// Those in use.
    pub fn features(&self) -> FeatureMap {
        FeatureMap::Drawn(Box::new(self.directions.value()))
    }

    /// Those for one more training pass: others, if it is time.
    pub fn features_of_training_pass(&self) -> FeatureMap {
        // Held until they are drawn: passes of other threads wait for them.
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        if passes.are_due(pass_number(), self.interval) {
            self.draw();
        }
        self.features()
    }

    /// Draws others. What is in use is read for it, which waits for the device: once in
    /// so many passes.
    fn draw(&self) {
        let directions = self.directions.value();
        let [count, d_head] = directions.dims();
        let (device, dtype) = (directions.device(), directions.dtype());
        let seed = directions
            .into_data()
            .iter::<f32>()
            .fold(count as u64, |seed, x| mix(seed ^ u64::from(x.to_bits())));
        let next = RandomFeatures::new(count, seed).directions(d_head);
        let next = TensorData::new(next, [count, d_head]);
        self.directions
            .update(Tensor::from_data(next, (&device, dtype)));
        // An update is in force, and part of a record, only when it was asked for.
        self.directions.value_sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(numbers: &[Option<u64>]) -> Vec<bool> {
        let mut passes = Passes::default();
        let due = |number: &Option<u64>| passes.are_due(*number, 3);
        numbers.iter().map(due).collect()
    }

    #[test]
    fn passes_without_a_number_are_counted() {
        let got = due(&[None; 7]);
        assert_eq!(got, [false, false, false, true, false, false, true]);
    }

    /// Wherever training goes on from, others are drawn at the same passes, and once for each.
    #[test]
    fn a_number_says_when() {
        let of_all = due(&[0, 1, 2, 3, 3, 4, 5, 6].map(Some));
        assert_eq!(
            of_all,
            [false, false, false, true, false, false, false, true]
        );
        assert_eq!(due(&[5, 6, 7].map(Some)), [false, true, false]);
        assert_eq!(due(&[3, 4].map(Some)), [true, false]);
    }
}
