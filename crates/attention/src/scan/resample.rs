//! Random features that are resampled during training, so that a model does not fit the errors of
//! one sample.
//!
//! Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::module::{Module, RunningState};
use burn::tensor::{Device, Tensor, TensorData};

use super::{FeatureMap, RandomFeatures};
use crate::counter::mix;

/// The current random features of a module. They are part of its record but not trained, so a
/// loaded module computes the same as the saved one.
///
/// The next sample is a function of the current one. The training loop decides when to resample
/// by calling [`resample_before`](Self::resample_before). If it does not, training passes are
/// counted from the last sample, or from when the module was created or loaded.
#[derive(Module, Debug)]
pub struct ResampledFeatures {
    /// `[count, d_head]`
    directions: RunningState<Tensor<2>>,
    interval: usize,
    /// Forward passes since the last sample; `None` if the training loop calls `resample_before`.
    /// Shared between clones of the module.
    #[module(skip)]
    passes: Arc<Mutex<Option<usize>>>,
}

impl ResampledFeatures {
    /// Starts with `first`, for heads of dimension `d_head`, and resamples after every `interval`
    /// training passes.
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
            passes: Arc::new(Mutex::new(Some(0))),
        }
    }

    /// The current features.
    pub fn features(&self) -> FeatureMap {
        FeatureMap::Directions(Box::new(self.directions.value()))
    }

    /// Resamples if the interval divides `pass`, the index of the next training pass. The first
    /// call turns off the counting of passes.
    ///
    /// A copy on another device or in another precision has its own features, which are lost with
    /// it. So call this once for each pass, on the module whose weights are trained and before it
    /// is copied: then all copies use the same features within a pass, and a resumed run resamples
    /// at the same steps.
    pub fn resample_before(&self, pass: u64) {
        *self.lock() = None;
        if pass > 0 && pass.is_multiple_of(self.interval as u64) {
            self.resample();
        }
    }

    /// The features for the next training pass, resampled if it is due.
    pub fn training_features(&self) -> FeatureMap {
        // The lock is held while resampling, so that passes of other threads wait.
        let mut passes = self.lock();
        if let Some(count) = passes.as_mut() {
            if *count >= self.interval {
                self.resample();
                *count = 0;
            }
            *count += 1;
        }
        self.features()
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.passes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resamples, seeded by the current features. Reading them synchronises with the device, once
    /// per interval.
    fn resample(&self) {
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
        // An update takes effect, also in the record, only after a sync.
        self.directions.value_sync();
    }
}
