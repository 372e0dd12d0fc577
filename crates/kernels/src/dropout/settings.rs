//! Which elements a call of dropout zeroes.

use burn::nn::Dropout;
use burn::tensor::{Device, Distribution, Tensor};

use crate::random;

/// What is forgotten, and by which seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Forgetting {
    /// The share of numbers that are forgotten, from 0 to below 1.
    pub(super) probability: f64,
    /// Which ones.
    pub(super) seed: u64,
}

impl Forgetting {
    /// What a module forgets of numbers on a device; `None` if it is not training. The seed is
    /// drawn from the device, and so decided by what that was seeded with.
    pub(super) fn of(dropout: &Dropout, device: &Device) -> Option<Self> {
        let is_training = dropout.training.is_enabled() && device.is_autodiff();
        (is_training && dropout.prob > 0.0).then(|| Self {
            probability: dropout.prob,
            seed: drawn_seed(device),
        })
    }

    /// A number is forgotten if what is drawn for it is below this.
    pub(super) fn threshold(&self) -> u32 {
        random::threshold(self.probability)
    }

    /// What the others are multiplied by.
    pub(super) fn factor(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }
}

/// 64 bits of the device's own random numbers.
fn drawn_seed(device: &Device) -> u64 {
    // A number of f32 has 24 bits of chance at most: three have more than enough.
    let drawn = Tensor::<1>::random([3], Distribution::Uniform(0.0, 1.0), device);
    let bits = drawn.into_data();
    bits.iter::<f32>().fold(0, |seed, number| {
        random::mix(seed ^ u64::from(number.to_bits()))
    })
}
