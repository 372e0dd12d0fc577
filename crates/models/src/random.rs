//! Counter-based random numbers on the host, identical on every backend.

use zoo_kernels::random::{mix, unit};

/// A uniform sample in `[0, 1)` that is a function of the seed and the counter.
pub(crate) fn uniform(seed: u64, counter: [u64; 2]) -> f64 {
    let bits = counter
        .into_iter()
        .fold(mix(seed), |bits, value| mix(bits ^ mix(value)));
    unit(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_uniform_over_seeds_and_counters() {
        let mean = |sample: fn(u64) -> f64| (0..10_000).map(sample).sum::<f64>() / 10_000.0;
        // Five standard deviations (0.003) of a mean of 10,000 samples.
        for sample in [
            (|i| uniform(i, [0, 0])) as fn(u64) -> f64,
            |i| uniform(7, [i, 0]),
            |i| uniform(7, [0, i]),
        ] {
            assert!((mean(sample) - 0.5).abs() < 0.015, "{}", mean(sample));
        }
        assert_ne!(uniform(0, [1, 2]), uniform(0, [2, 1]));
        assert_eq!(uniform(5, [3, 4]), uniform(5, [3, 4]));
    }
}
