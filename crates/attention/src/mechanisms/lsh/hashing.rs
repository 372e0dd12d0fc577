//! Angular LSH: the hash of a query is the nearest of some random directions and their opposites.

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use std::sync::Arc;

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
    pub(super) hashes: usize,
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
        let [.., seq, _] = query.dims();
        let sizes = round_directions(self, seq);
        #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
        if zoo_kernels::is_on_host(query) {
            let [.., d_head] = query.dims();
            let groups = self.n_hashes * sizes.hashes;
            let directions = cached_directions(self, seq, d_head);
            let query = rows_of(query).into_data();
            let query = query.as_slice().expect("widened to f32");
            return combine(
                &super::nearest::nearest(query, &directions, groups, sizes),
                sizes,
            );
        }
        let nearest: Vec<u32> = nearest(self, query).into_data().iter().collect();
        combine(&nearest, sizes)
    }
}

/// The hashes from the indices of the nearest directions.
pub(super) fn combine(nearest: &[u32], Directions { hashes, each }: Directions) -> Vec<u32> {
    let base = 2 * each as u32;
    let combine = |parts: &[u32]| parts.iter().fold(0, |hash, part| hash * base + part);
    nearest.chunks_exact(hashes).map(combine).collect()
}

/// Queries as rows `[batch · heads · seq, d_head]` in `f32`, without gradients: hashes have none.
fn rows_of(query: &Tensor<4>) -> Tensor<2> {
    let [batch, heads, seq, d_head] = query.dims();
    widen(query.clone().detach()).reshape([batch * heads * seq, d_head])
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
fn cached_directions(lsh: &Lsh, seq: usize, d_head: usize) -> Arc<Vec<f32>> {
    static MEMO: Memo<([usize; 4], u64), Vec<f32>> = Memo::new();
    let sizes = [lsh.bucket_size, lsh.n_hashes, seq, d_head];
    MEMO.get((sizes, lsh.seed), |_| lsh.directions(seq, d_head))
}

/// The index of the nearest direction of every query, computed on its device:
/// `[batch · heads · seq, rounds · hashes]`. Among equally near ones it is that of the first.
pub(super) fn nearest(lsh: &Lsh, query: &Tensor<4>) -> Tensor<2, Int> {
    let [.., seq, _] = query.dims();
    let Directions { hashes, each } = round_directions(lsh, seq);
    let query = rows_of(query);
    let ([queries, _], groups) = (query.dims(), lsh.n_hashes * hashes);
    let both = device_directions(lsh, seq, &query); // [d_head, groups * 2 each]
    let batch_size = (MAX_PRODUCTS / (groups * 2 * each)).max(1);
    let nearest: Vec<Tensor<2, Int>> = (0..queries)
        .step_by(batch_size)
        .map(|first| {
            let rows = first..queries.min(first + batch_size);
            let products = matmul(query.clone().slice_dim(0, rows.clone()), both.clone());
            let nearest = products.reshape([rows.len() * groups, 2 * each]).argmax(1);
            nearest.reshape([rows.len(), groups])
        })
        .collect();
    match nearest.as_slice() {
        [nearest] => nearest.clone(),
        _ => Tensor::cat(nearest, 0),
    }
}

/// The directions and their opposites as columns, on the device of the queries; cached.
fn device_directions(lsh: &Lsh, seq: usize, query: &Tensor<2>) -> Tensor<2> {
    type Key = ([usize; 4], u64, String);
    static MEMO: Memo<Key, Tensor<2>> = Memo::new();
    let ([_, d_head], device) = (query.dims(), query.device());
    let sizes = [lsh.bucket_size, lsh.n_hashes, seq, d_head];
    let key = (sizes, lsh.seed, format!("{device:?}"));
    let directions = MEMO.get(key, |_| {
        let Directions { hashes, each } = round_directions(lsh, seq);
        let groups = lsh.n_hashes * hashes;
        let directions = TensorData::new(lsh.directions(seq, d_head), [groups, each, d_head]);
        let directions = Tensor::<3>::from_data(directions, (&device, query.dtype()));
        Tensor::cat(vec![directions.clone(), directions.neg()], 1)
            .reshape([groups * 2 * each, d_head])
            .swap_dims(0, 1)
    });
    Tensor::clone(&directions)
}

/// Panics if `bucket_size` or `n_hashes` is zero.
pub(super) fn check(lsh: &Lsh, op: &str) {
    for (name, size) in [("bucket_size", lsh.bucket_size), ("n_hashes", lsh.n_hashes)] {
        assert!(size > 0, "{op}: {name} must be at least 1, got 0");
    }
}

pub(super) fn round_directions(lsh: &Lsh, seq: usize) -> Directions {
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
