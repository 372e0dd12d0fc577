//! Seeds of attention dropout and of the samples of hard attention.

use std::cell::Cell;

use burn::tensor::{DType, Device, Distribution, Tensor};

use crate::counter::mix;

thread_local! {
    /// The next seed within [`with_seed`].
    static SCOPE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` with the seeds of this thread's attention modules derived from `seed` instead of the
/// device. The same seed and the same calls give the same samples, on every backend.
///
/// Outside of it, every call takes its seed from the device's random number generator, so that
/// [`Device::seed`] determines it, as it does for `burn::nn::Dropout`. That reads four values back,
/// which synchronises a GPU; within `with_seed` nothing is read. The generator of a device is
/// shared by all threads, while this scope belongs to one thread.
pub fn with_seed<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    let _outer = Restore(SCOPE.replace(Some(mix(seed))));
    work()
}

/// Restores the outer scope, also on panic.
struct Restore(Option<u64>);

impl Drop for Restore {
    fn drop(&mut self) {
        SCOPE.set(self.0);
    }
}

/// A new seed for each call, from the device's generator or from [`with_seed`].
pub fn next_seed(device: &Device) -> u64 {
    if let Some(next) = SCOPE.get() {
        SCOPE.set(Some(next.wrapping_add(1)));
        return mix(next);
    }
    // Sixteen bits at a time: every backend samples `f32` with at least that resolution.
    let uniform = Distribution::Uniform(0.0, f64::from(1_u32 << 16));
    let sampled = Tensor::<1>::random([4], uniform, (&device.clone().inner(), DType::F32));
    let bits = sampled
        .into_data()
        .iter::<f32>()
        .fold(0, |bits, sample| bits << 16 | (sample as u64 & 0xFFFF));
    mix(bits)
}

#[cfg(all(test, feature = "flex"))]
mod tests {
    use super::*;

    fn two(device: &Device) -> [u64; 2] {
        [next_seed(device), next_seed(device)]
    }

    #[test]
    fn with_seed_determines_seeds_within_its_scope_only() {
        let device = Device::flex().autodiff();
        let scoped = |seed: u64| with_seed(seed, || two(&device));
        let [first, second] = scoped(7);
        assert_ne!(first, second);
        assert_eq!(scoped(7), [first, second]);
        assert_ne!(scoped(8), [first, second]);
        // A nested scope does not advance the outer one.
        let nested = with_seed(7, || {
            let first = next_seed(&device);
            scoped(8);
            [first, next_seed(&device)]
        });
        assert_eq!(nested, [first, second]);
        let panicked = std::panic::catch_unwind(|| with_seed(7, || panic!("as a model may")));
        assert!(panicked.is_err());
        assert_eq!(SCOPE.get(), None);
    }
}
