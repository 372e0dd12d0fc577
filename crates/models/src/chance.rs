//! Random numbers on the host, the same on every backend: a number is the scrambled form of
//! where it is needed.

use zoo_kernels::random::{mix, unit};

/// A number from 0 to below 1 that follows from a seed and the place it is drawn for.
pub(crate) fn uniform(seed: u64, place: [u64; 2]) -> f64 {
    let bits = place
        .into_iter()
        .fold(mix(seed), |bits, at| mix(bits ^ mix(at)));
    unit(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_over_seeds_and_places() {
        let mean = |draw: fn(u64) -> f64| (0..10_000).map(draw).sum::<f64>() / 10_000.0;
        // The deviation of a mean of 10,000 is 0.003: five of them.
        for draw in [
            (|at| uniform(at, [0, 0])) as fn(u64) -> f64,
            |at| uniform(7, [at, 0]),
            |at| uniform(7, [0, at]),
        ] {
            assert!((mean(draw) - 0.5).abs() < 0.015, "{}", mean(draw));
        }
        assert_ne!(uniform(0, [1, 2]), uniform(0, [2, 1]));
        assert_eq!(uniform(5, [3, 4]), uniform(5, [3, 4]));
    }
}
