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

/// The random features in use. They are part of a module's record, without being learned:
/// what was saved computes the same when it is loaded.
///
/// Which come next follows from those in use. Passes are counted from the last draw, or
/// from when the module was made or loaded.
#[derive(Module, Debug)]
pub struct RedrawnFeatures {
    /// `[count, d_head]`
    directions: RunningState<Tensor<2>>,
    interval: usize,
    /// Training passes since the last draw. Clones share it, as they share what was drawn.
    #[module(skip)]
    passes: Arc<Mutex<usize>>,
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
        if *passes >= self.interval {
            self.draw();
            *passes = 0;
        }
        *passes += 1;
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
