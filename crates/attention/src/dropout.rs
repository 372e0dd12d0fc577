//! Forgetting weights at random while training:
//! Srivastava et al., [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), 2014.

#[cfg(feature = "cube")]
use crate::counter::head_key;
use crate::counter::{draw, row_key};
use zoo_kernels::random::threshold;

/// Sets each attention weight to zero with some probability, and multiplies the others
/// so that their sum stays what it was on average.
///
/// Which weights are dropped follows from the seed and their place alone: the same in
/// the forward and the backward pass, for every mechanism and on every backend, but for
/// LibTorch's kernels on CUDA, which choose by the seed in a way of their own. A training
/// step takes a new seed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The share of weights that are dropped, from 0 to below 1.
    pub probability: f64,
    /// Which ones.
    pub seed: u64,
}

impl Dropout {
    /// Drops `probability` of the weights, chosen by `seed`.
    pub fn new(probability: f64, seed: u64) -> Self {
        Self { probability, seed }
    }

    pub(crate) fn check(&self, op: &str) {
        assert!(
            (0.0..1.0).contains(&self.probability),
            "{op}: a dropout must be at least 0 and below 1, got {}",
            self.probability
        );
    }

    /// What the weights of query `[example, head, query]` are drawn by.
    pub(crate) fn row(&self, query: [usize; 3]) -> [u32; 2] {
        row_key(self.seed, query)
    }

    /// What the rows of `[example, head]` are drawn by, all of them.
    #[cfg(feature = "cube")]
    pub(crate) fn of_head(&self, head: [usize; 2]) -> u64 {
        head_key(self.seed, head)
    }

    /// A weight is dropped if what is drawn for it is below this.
    pub(crate) fn threshold(&self) -> u32 {
        threshold(self.probability)
    }

    /// What weights that stay are multiplied by.
    pub(crate) fn factor(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }

    /// Adds to `factors` what the weights of one query for some keys are multiplied by.
    pub(crate) fn write_factors(
        &self,
        query: [usize; 3],
        keys: std::ops::Range<usize>,
        factors: &mut Vec<f32>,
    ) {
        let (row, threshold, factor) = (self.row(query), self.threshold(), self.factor());
        factors.extend(keys.map(|key| {
            if draw(row, key as u32) < threshold {
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

    fn kept(dropout: Dropout, query: [usize; 3], keys: usize) -> Vec<bool> {
        let mut factors = Vec::new();
        dropout.write_factors(query, 0..keys, &mut factors);
        factors.into_iter().map(|factor| factor != 0.0).collect()
    }

    /// Neighbours, along and across, agree half of the time when half are dropped.
    #[test]
    fn places_are_independent() {
        let dropout = Dropout::new(0.5, 11);
        let agree = |a: &[bool], b: &[bool]| {
            a.iter().zip(b).filter(|(a, b)| a == b).count() as f64 / a.len() as f64
        };
        let n = 20_000;
        let row = kept(dropout, [0, 0, 0], n);
        let others = [
            (
                "the next key",
                kept(dropout, [0, 0, 0], n + 1)[1..].to_vec(),
            ),
            (
                "the next but 15",
                kept(dropout, [0, 0, 0], n + 16)[16..].to_vec(),
            ),
            ("the next query", kept(dropout, [0, 0, 1], n)),
            ("the next head", kept(dropout, [0, 1, 0], n)),
            ("the next example", kept(dropout, [1, 0, 0], n)),
            ("the next seed", kept(Dropout::new(0.5, 12), [0, 0, 0], n)),
        ];
        // Five standard errors of a coin tossed 20,000 times.
        let noise = 5.0 * 0.5 / (n as f64).sqrt();
        for (what, other) in others {
            let share = agree(&row, &other);
            assert!((share - 0.5).abs() <= noise, "{what}: {share}");
        }
    }
}
