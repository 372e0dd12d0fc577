//! Angular LSH: the hash of a query is the nearest of some random directions and their opposites.

use burn::tensor::{Int, Tensor, TensorData};
use zoo_spec::Lsh;

use crate::counter::Normals;
use crate::matmul::matmul;
use crate::memo::Memo;
use crate::precision::widen;

/// Above this number of buckets, a hash is a pair. A product with 128 directions costs about as
/// much as one with the 128 keys of two chunks.
const MAX_SINGLE_HASHES: usize = 256;

/// Number of products computed at a time: 32 MB.
const MAX_PRODUCTS: usize = 1 << 23;

/// The directions of one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Directions {
    /// 1, or 2 if a hash is a pair.
    hashes: usize,
    /// Number of directions of each, not counting their opposites.
    pub(super) each: usize,
}

/// Angular LSH: nearby queries are likely to have the same hash.
///
/// ```text
/// hash(x) = argmax [xR; -xR]        R: standard normal, resampled for each round
/// ```
///
/// There are about `seq / bucket` distinct hashes. If these are many, a hash is a pair of two
/// hashes with about `sqrt(seq / bucket)` values each, so that hashing costs
/// `seq · sqrt(seq / bucket)` instead of growing quadratically.
///
/// Both functions panic if `bucket_size` or `n_hashes` is zero.
///
/// Andoni et al., [Practical and Optimal LSH for Angular
/// Distance](https://arxiv.org/abs/1509.02897), 2015.
pub trait Hashing {
    /// The directions for `seq` positions, the columns of every round's `R`:
    /// `[rounds, hashes, each, d_head]` in row-major order, with 2 hashes if a hash is a pair.
    fn directions(&self, seq: usize, d_head: usize) -> Vec<f32>;

    /// The hash of every query, `[batch, heads, seq, d_head]`, in every round:
    /// `[batch, heads, seq, rounds]` in row-major order.
    ///
    /// If two directions are equally near up to rounding, the hash may differ between backends.
    fn hashes(&self, query: &Tensor<4>) -> Vec<u32>;
}

impl Hashing for Lsh {
    fn directions(&self, seq: usize, d_head: usize) -> Vec<f32> {
        let Directions { hashes, each } = round_directions(self, seq);
        let direction = |index: usize| {
            let (round, column) = (index / (hashes * each), index % (hashes * each));
            let mut normals = Normals::new([self.seed, round as u64, column as u64]);
            (0..d_head).map(move |_| normals.next() as f32)
        };
        (0..self.n_hashes * hashes * each)
            .flat_map(direction)
            .collect()
    }

    fn hashes(&self, query: &Tensor<4>) -> Vec<u32> {
        let [batch, heads, seq, d_head] = query.dims();
        let sizes = round_directions(self, seq);
        let Directions { hashes, each } = sizes;
        let (queries, groups) = (batch * heads * seq, self.n_hashes * hashes);
        static MEMO: Memo<([usize; 4], u64), Vec<f32>> = Memo::new();
        let directions = MEMO.get(
            ([self.bucket_size, self.n_hashes, seq, d_head], self.seed),
            |_| self.directions(seq, d_head),
        );
        let base = 2 * each as u32;
        let combine = |parts: &[u32]| parts.iter().fold(0, |hash, part| hash * base + part);
        // Hashes have no gradient.
        let query = widen(query.clone().detach()).reshape([queries, d_head]);
        #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
        if zoo_kernels::is_on_host(&query) {
            let query = query.into_data();
            let query = query.as_slice().expect("widened to f32");
            let nearest = super::nearest::nearest(query, &directions, groups, sizes);
            return nearest.chunks_exact(hashes).map(combine).collect();
        }

        let directions = TensorData::new(directions.to_vec(), [groups, each, d_head]);
        let directions = Tensor::<3>::from_data(directions, (&query.device(), query.dtype()));
        let both = Tensor::cat(vec![directions.clone(), directions.neg()], 1)
            .reshape([groups * 2 * each, d_head])
            .swap_dims(0, 1); // [d_head, groups * 2 each]

        let batch_size = (MAX_PRODUCTS / (groups * 2 * each)).max(1);
        let nearest: Vec<Tensor<2, Int>> = (0..queries)
            .step_by(batch_size)
            .map(|first| {
                let rows = first..queries.min(first + batch_size);
                let products = matmul(query.clone().slice_dim(0, rows.clone()), both.clone());
                products.reshape([rows.len() * groups, 2 * each]).argmax(1) // [queries * groups, 1]
            })
            .collect();
        let nearest: Vec<u32> = Tensor::cat(nearest, 0).into_data().iter().collect();
        nearest.chunks_exact(hashes).map(combine).collect()
    }
}

/// Panics if `bucket_size` or `n_hashes` is zero.
pub(super) fn check(lsh: &Lsh, op: &str) {
    for (name, size) in [("bucket_size", lsh.bucket_size), ("n_hashes", lsh.n_hashes)] {
        assert!(size > 0, "{op}: {name} must be at least 1, got 0");
    }
}

fn round_directions(lsh: &Lsh, seq: usize) -> Directions {
    check(lsh, "lsh hashing");
    let each = seq.div_ceil(lsh.bucket_size).div_ceil(2).max(1);
    if 2 * each <= MAX_SINGLE_HASHES {
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
    fn directions_differ_between_rounds_and_seeds() {
        let (seq, d_head) = (40, 8);
        let directions = Lsh::new(4, 2, 7).directions(seq, d_head);
        assert_eq!(directions.len(), 2 * 5 * d_head);
        assert_ne!(directions[..40], directions[40..]);
        assert_eq!(directions, Lsh::new(4, 2, 7).directions(seq, d_head));
        assert_ne!(directions, Lsh::new(4, 2, 8).directions(seq, d_head));
    }
}
