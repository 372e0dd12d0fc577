//! Random features that are drawn anew from time to time while a model learns, so that it
//! does not learn the errors of one draw.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, RunningState};
use burn::tensor::{Device, Tensor, TensorData};

use super::{FeatureMap, RandomFeatures};
use crate::counter::mix;

/// The random features in use. They are part of a module's record, without being learned:
/// what was saved computes the same when it is loaded.
///
/// Which come next follows from those in use. When they come is decided by
/// [`redraw_before`](Self::redraw_before), if the training loop calls it; otherwise passes are
/// counted from the last draw, or from when the module was made or loaded.
#[derive(Module, Debug)]
pub struct RedrawnFeatures {
    /// `[count, d_head]`
    directions: RunningState<Tensor<2>>,
    interval: usize,
    /// Shared with every copy of the module.
    #[module(skip)]
    passes: Arc<Mutex<Passes>>,
}

/// How far training is.
#[derive(Debug, Clone, Copy)]
enum Passes {
    /// Forward passes since the last draw.
    Counted(usize),
    /// The training loop calls [`RedrawnFeatures::redraw_before`].
    Told,
}

impl Passes {
    /// Counts one more, and returns whether it is time to draw others for it.
    fn is_due(&mut self, interval: usize) -> bool {
        match self {
            Self::Counted(count) if *count >= interval => {
                *count = 1;
                true
            }
            Self::Counted(count) => {
                *count += 1;
                false
            }
            Self::Told => false,
        }
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
            passes: Arc::new(Mutex::new(Passes::Counted(0))),
        }
    }

    /// Those in use.
    pub fn features(&self) -> FeatureMap {
        FeatureMap::Drawn(Box::new(self.directions.value()))
    }

    /// Draws others if the interval divides `pass`, the number of the training pass that comes
    /// next. From the first call on nothing else draws them.
    ///
    /// A copy on another device or in another precision has features of its own, and what it
    /// would draw is lost with it. So this is called once for each pass, on the module whose
    /// weights are trained, and before it is copied: then all copies have the same features
    /// in every part of a pass, and a training that is resumed draws them when it would have.
    pub fn redraw_before(&self, pass: u64) {
        *self.lock() = Passes::Told;
        if pass > 0 && pass.is_multiple_of(self.interval as u64) {
            self.draw();
        }
    }

    /// Those for one more training pass: others, if it is time.
    pub fn features_of_training_pass(&self) -> FeatureMap {
        // Locked until they are drawn: passes of other threads wait for them.
        let mut passes = self.lock();
        if passes.is_due(self.interval) {
            self.draw();
        }
        self.features()
    }

    fn lock(&self) -> MutexGuard<'_, Passes> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
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
