//! Dropout of attention weights:
//! Srivastava et al., [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), 2014.

#[cfg(feature = "cube")]
use crate::counter::head_key;
#[cfg(feature = "tch")]
use crate::counter::mix;
use crate::counter::{random_bits, row_key};
use zoo_kernels::random::threshold;

/// Sets each attention weight to zero with probability `p` and multiplies the others by
/// `1 / (1 - p)`.
///
/// Which weights are dropped depends only on the seed and their position: it is the same in the
/// forward and the backward pass, for every mechanism and on every backend. The exception is
/// LibTorch's CUDA kernels, which use their own generator. Use a new seed for each training step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Probability of dropping a weight, at least 0 and below 1.
    pub probability: f64,
    /// Random seed.
    pub seed: u64,
    /// Index of the first head of the tensors among the heads of the layer.
    pub(crate) first_head: usize,
}

impl Dropout {
    /// Dropout with a probability and a random seed.
    pub fn new(probability: f64, seed: u64) -> Self {
        Self {
            probability,
            seed,
            first_head: 0,
        }
    }

    pub(crate) fn check(&self, op: &str) {
        assert!(
            (0.0..1.0).contains(&self.probability),
            "{op}: the dropout probability must be at least 0 and below 1, got {}",
            self.probability
        );
    }

    pub(crate) fn row_key(&self, [example, head, query]: [usize; 3]) -> [u32; 2] {
        row_key(self.seed, [example, self.first_head + head, query])
    }

    #[cfg(feature = "cube")]
    pub(crate) fn head_key(&self, [example, head]: [usize; 2]) -> u64 {
        head_key(self.seed, [example, self.first_head + head])
    }

    /// The seed for a kernel with its own generator, which does not know the first head.
    #[cfg(feature = "tch")]
    pub(crate) fn kernel_seed(&self) -> u64 {
        match self.first_head {
            0 => self.seed,
            head => mix(self.seed.wrapping_add(head as u64)),
        }
    }

    /// A weight is dropped if its random number is below this.
    pub(crate) fn threshold(&self) -> u32 {
        threshold(self.probability)
    }

    /// The factor of the weights that are not dropped.
    pub(crate) fn factor(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }

    /// The factor of the weight of a query and a key.
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    pub(crate) fn factor_at(&self, query: [usize; 3], key: usize) -> f32 {
        let random = random_bits(self.row_key(query), key as u32);
        if random < self.threshold() {
            0.0
        } else {
            self.factor()
        }
    }

    /// Appends the factors of one query's weights for a range of keys: 0 for dropped weights.
    pub(crate) fn write_factors(
        &self,
        query: [usize; 3],
        keys: std::ops::Range<usize>,
        factors: &mut Vec<f32>,
    ) {
        let (row, threshold, factor) = (self.row_key(query), self.threshold(), self.factor());
        factors.extend(keys.map(|key| {
            if random_bits(row, key as u32) < threshold {
                0.0
            } else {
                factor
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retained(dropout: Dropout, query: [usize; 3], keys: usize) -> Vec<bool> {
        let mut factors = Vec::new();
        dropout.write_factors(query, 0..keys, &mut factors);
        factors.into_iter().map(|factor| factor != 0.0).collect()
    }

    /// With a probability of 0.5, neighbouring keys, queries, heads, examples and seeds agree half
    /// of the time.
    #[test]
    fn dropped_weights_are_independent() {
        let dropout = Dropout::new(0.5, 11);
        let agree = |a: &[bool], b: &[bool]| {
            a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64
        };
        let n = 20_000;
        let row = retained(dropout, [0, 0, 0], n);
        let shifted = |by: usize| retained(dropout, [0, 0, 0], n + by)[by..].to_vec();
        let others = [
            ("next key", shifted(1)),
            ("16 keys ahead", shifted(16)),
            ("next query", retained(dropout, [0, 0, 1], n)),
            ("next head", retained(dropout, [0, 1, 0], n)),
            ("next example", retained(dropout, [1, 0, 0], n)),
            ("next seed", retained(Dropout::new(0.5, 12), [0, 0, 0], n)),
        ];
        // Five standard errors of 20,000 fair coin flips.
        let noise = 5.0 * 0.5 / (n as f64).sqrt();
        for (name, other) in others {
            let fraction = agree(&row, &other);
            assert!((fraction - 0.5).abs() <= noise, "{name}: {fraction}");
        }
    }
}
