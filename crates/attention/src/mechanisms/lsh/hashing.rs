//! The hash of a query: which of some random directions, or their opposites, it is
//! nearest to.

use burn::tensor::{Int, Tensor, TensorData};
use zoo_spec::Lsh;

use crate::counter::Normals;
use crate::kept::Kept;
use crate::precision::widen;

/// More hashes than these are pairs. A product with 128 directions costs about as much
/// as one with the 128 keys of two chunks.
const HASHES_OF_ONE: usize = 256;

/// Products held at a time, 32 MB of them.
const PRODUCTS: usize = 1 << 23;

/// The directions of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Directions {
    /// Hashes that make one: 1, or 2 for a pair.
    hashes: usize,
    /// Directions of each; their opposites are as many again.
    each: usize,
}

/// Angular hashing: nearby queries are likely to share a hash.
///
/// ```text
/// hash(x) = argmax [xR; -xR]        R: normal numbers, others in each round
/// ```
///
/// There are about as many hashes as chunks of `bucket` places. Where these are many, the
/// hash is a pair of two such ones, of about the root of as many: to find it costs
/// `seq · sqrt(seq / bucket)`, never the square of the length.
///
/// Andoni et al., [Practical and Optimal LSH for Angular
/// Distance](https://arxiv.org/abs/1509.02897), 2015.
pub trait Hashing {
    /// The directions for so many places, `[rounds, hashes, each, d_head]` row by row:
    /// the columns of every round's `R`, where a hash is a pair those of one and then of
    /// the other.
    ///
    /// # Panics
    ///
    /// If there is no bucket or no round.
    fn directions(&self, seq: usize, d_head: usize) -> Vec<f32>;

    /// The hash of every query in every round, `[batch, heads, seq, rounds]` row by row.
    ///
    /// A query as near to two directions as numbers are rounded may have the hash of
    /// either, another on every backend.
    ///
    /// # Shapes
    ///
    /// - query: `[batch, heads, seq, d_head]`
    ///
    /// # Panics
    ///
    /// If there is no bucket or no round.
    fn hashes(&self, query: &Tensor<4>) -> Vec<u32>;
}

impl Hashing for Lsh {
    fn directions(&self, seq: usize, d_head: usize) -> Vec<f32> {
        let Directions { hashes, each } = directions_of_a_round(self, seq);
        let direction = |at: usize| {
            let (round, own) = (at / (hashes * each), at % (hashes * each));
            let mut normals = Normals::new([self.seed, round as u64, own as u64]);
            (0..d_head).map(move |_| normals.next() as f32)
        };
        (0..self.rounds * hashes * each)
            .flat_map(direction)
            .collect()
    }

    fn hashes(&self, query: &Tensor<4>) -> Vec<u32> {
        let [batch, heads, seq, d_head] = query.dims();
        let Directions { hashes, each } = directions_of_a_round(self, seq);
        let (queries, groups) = (batch * heads * seq, self.rounds * hashes);
        // Nothing is learned through a hash.
        let query = widen(query.clone().detach()).reshape([queries, d_head]);

        static KEPT: Kept<([usize; 4], u64), Vec<f32>> = Kept::new();
        let directions = KEPT.get(([self.bucket, self.rounds, seq, d_head], self.seed), |_| {
            self.directions(seq, d_head)
        });
        let directions = TensorData::new(directions.to_vec(), [groups, each, d_head]);
        let directions = Tensor::<3>::from_data(directions, (&query.device(), query.dtype()));
        let both = Tensor::cat(vec![directions.clone(), directions.neg()], 1)
            .reshape([groups * 2 * each, d_head])
            .swap_dims(0, 1); // [d_head, groups * 2 each]

        let at_once = (PRODUCTS / (groups * 2 * each)).max(1);
        let nearest: Vec<Tensor<2, Int>> = (0..queries)
            .step_by(at_once)
            .map(|first| {
                let some = first..queries.min(first + at_once);
                let products = query
                    .clone()
                    .slice_dim(0, some.clone())
                    .matmul(both.clone());
                products.reshape([some.len() * groups, 2 * each]).argmax(1) // [queries * groups, 1]
            })
            .collect();
        let nearest: Vec<u32> = Tensor::cat(nearest, 0).into_data().iter().collect();
        nearest
            .chunks_exact(hashes)
            .map(|of_one| {
                of_one
                    .iter()
                    .fold(0, |hash, own| hash * 2 * each as u32 + own)
            })
            .collect()
    }
}

/// Panics unless there is something to sort.
pub(super) fn check(lsh: &Lsh, op: &str) {
    for (name, size) in [("a bucket", lsh.bucket), ("rounds", lsh.rounds)] {
        assert!(size > 0, "{op}: {name} must be at least 1, got 0");
    }
}

fn directions_of_a_round(lsh: &Lsh, seq: usize) -> Directions {
    check(lsh, "lsh hashing");
    let each = seq.div_ceil(lsh.bucket).div_ceil(2).max(1);
    if 2 * each <= HASHES_OF_ONE {
        return Directions { hashes: 1, each };
    }
    let root = (2.0 * each as f64).sqrt();
    Directions {
        hashes: 2,
        each: (root / 2.0).ceil() as usize,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_and_seed_has_directions_of_its_own() {
        let (seq, d_head) = (40, 8);
        let drawn = Lsh::new(4, 2, 7).directions(seq, d_head);
        assert_eq!(drawn.len(), 2 * 5 * d_head);
        assert_ne!(drawn[..40], drawn[40..]);
        assert_eq!(drawn, Lsh::new(4, 2, 7).directions(seq, d_head));
        assert_ne!(drawn, Lsh::new(4, 2, 8).directions(seq, d_head));
    }
}
