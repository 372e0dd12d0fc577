//! Feature maps of linear attention, whose dot products replace the exponential of the score.

use std::sync::Arc;

use burn::tensor::{Bool, Tensor, TensorData, activation};

use zoo_spec::LinearFeatures;

use super::call::{Directions, ScanMap};
use super::key_mask::KeyMask;
use crate::AttentionShape;
use crate::counter::Normals;
use crate::matmul::matmul;
use crate::memo::Memo;
use crate::precision::{narrow, widened};

/// The feature map of queries and keys. No dot product of features is negative, and no feature
/// itself, except those of `Taylor`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum FeatureMap {
    /// `elu(x) + 1`: Katharopoulos et al., 2020.
    #[default]
    Elu1,
    /// `max(x, 0) + 0.001`, so that no query has only zeros:
    /// Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.
    Relu,
    /// Random features whose dot product is, in expectation, the exponential of softmax.
    FavorPlus(RandomFeatures),
    /// `FavorPlus` with given directions, `[count, d_head]`, which get no gradient.
    Directions(Box<Tensor<2>>),
    /// `max(x, 0)` times the cosine and the sine of `π/2 · position / length`. Dot products are
    /// `cos(π/2 · (i - j) / length)` times those of `max(x, 0)`. Sequences may have up to this
    /// length: Qin et al., [cosFormer](https://arxiv.org/abs/2202.08791), 2022.
    Cosine(usize),
    /// `1`, `x` and the products of pairs of elements, divided by `sqrt(2)`. Dot products are
    /// `1 + s + s² / 2` with `s = scale · q · k`: Arora et al.,
    /// [Based](https://arxiv.org/abs/2402.18668), 2024.
    Taylor,
}

/// Positive orthogonal random features:
///
/// ```text
/// φ(x) = exp(ω · x - |x|² / 2) / sqrt(count)      E φ(q) · φ(k) = exp(q · k)
/// ```
///
/// Each `ω` is a normally distributed vector, orthogonalised in blocks of `d_head` vectors. The
/// error decreases as `1/sqrt(count)`. [`ResampledFeatures`](crate::scan::ResampledFeatures) resamples
/// them during training.
///
/// Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomFeatures {
    /// Number of features.
    pub count: usize,
    /// Random seed.
    pub seed: u64,
}

impl From<LinearFeatures> for FeatureMap {
    fn from(features: LinearFeatures) -> Self {
        match features {
            LinearFeatures::Elu1 => Self::Elu1,
            LinearFeatures::Relu => Self::Relu,
        }
    }
}

/// The constant that [`FeatureMap::Relu`] adds.
pub(super) const RELU_FLOOR: f32 = 1e-3;

impl FeatureMap {
    /// The feature map on the device of the query, for sequences of `length` positions. Panics if
    /// `d_head` or the length does not match.
    pub(crate) fn prepare(&self, op: &str, query: &Tensor<4>, length: usize) -> Features {
        let [.., d_head] = query.dims();
        match self {
            &Self::Cosine(max_length) => {
                assert!(
                    length <= max_length,
                    "{op}: a sequence may have up to {max_length} positions, got {length}; help: \
                     set the length of cosine features to that of the longest sequence"
                );
                Features::Cosine(max_length)
            }
            Self::Taylor => Features::Taylor,
            Self::Elu1 => Features::Elu1,
            Self::Relu => Features::Relu,
            Self::FavorPlus(random) => {
                assert!(
                    random.count > 0,
                    "{op}: the number of random features must be at least 1, got 0"
                );
                Features::Exponential(Box::new(random.tensor(query)))
            }
            Self::Directions(directions) => {
                let [count, width] = directions.dims();
                assert!(
                    count > 0 && width == d_head,
                    "{op}: the directions of random features must be [count, d_head = {d_head}], \
                     got {:?}",
                    directions.dims()
                );
                let directions = directions.as_ref().clone().detach();
                let directions = directions.reshape([1, 1, count, d_head]);
                Features::Exponential(Box::new(narrow(directions, widened(query.dtype()))))
            }
        }
    }
}

/// A [`FeatureMap`] with its tensors.
#[derive(Debug, Clone)]
pub(crate) enum Features {
    Elu1,
    Relu,
    /// Directions `[1, 1, count, d_head]`.
    Exponential(Box<Tensor<4>>),
    /// Of positions below this one.
    Cosine(usize),
    Taylor,
}

impl Features {
    /// The factors of queries and keys.
    pub(crate) fn scale(&self, scale: Option<f64>, default: f64) -> [f64; 2] {
        match self {
            // No exponential, so no scale is needed by default.
            Self::Elu1 | Self::Relu | Self::Cosine(_) => [scale.unwrap_or(1.0), 1.0],
            Self::Exponential(_) | Self::Taylor => {
                let scale = scale.unwrap_or(default);
                let root = scale.abs().sqrt();
                [root.copysign(scale), root]
            }
        }
    }

    /// The number of features of a head.
    pub(crate) fn count(&self, d_head: usize) -> usize {
        match self {
            Self::Elu1 | Self::Relu => d_head,
            Self::Exponential(directions) => directions.dims()[2],
            Self::Cosine(_) => 2 * d_head,
            Self::Taylor => taylor_count(d_head),
        }
    }

    /// The map for the fused scan; `Features` if it does not compute them. Panics if the directions
    /// cannot be read from their device.
    pub(crate) fn scan_map(&self) -> ScanMap {
        match self {
            Self::Elu1 => ScanMap::Elu1,
            Self::Relu => ScanMap::Relu,
            Self::Cosine(_) | Self::Taylor => ScanMap::Features,
            Self::Exponential(directions) => {
                let [.., d_head] = directions.dims();
                let directions: Vec<f32> = directions.to_data().iter().collect();
                ScanMap::Exponential(Arc::new(Directions::new(&directions, d_head)))
            }
        }
    }

    /// `[batch, heads, seq_q, features]`, of queries at these positions.
    pub(crate) fn map_queries(
        &self,
        query: Tensor<4>,
        [scale, _]: [f64; 2],
        positions: impl Iterator<Item = usize>,
    ) -> Tensor<4> {
        let query = scaled(query, scale);
        match self {
            Self::Elu1 => elu1(query),
            Self::Relu => activation::relu(query).add_scalar(RELU_FLOOR),
            Self::Exponential(directions) => {
                let exponents = exponents(query, directions);
                // A factor per query cancels out: the largest feature becomes 1.
                let max = exponents.clone().detach().max_dim(3);
                exponents.sub(max).exp()
            }
            &Self::Cosine(length) => cosine(query, length, positions),
            Self::Taylor => taylor(query),
        }
    }

    /// `[batch, kv_heads, seq_k, features]`, zero for masked keys. The first is at position `first`.
    pub(crate) fn map_keys(
        &self,
        key: Tensor<4>,
        scale: [f64; 2],
        key_mask: &KeyMask,
        first: usize,
    ) -> Tensor<4> {
        let (features, _) = self.map_new_keys(key, scale, key_mask.masked.clone(), first);
        key_mask.clear(features)
    }

    /// The features of new keys, the first of them at position `first`, and, for exponential features,
    /// the logarithm of the factor by which those of a head were divided. Masked keys do not affect
    /// that factor.
    pub(crate) fn map_new_keys(
        &self,
        key: Tensor<4>,
        [_, scale]: [f64; 2],
        masked: Option<Tensor<4, Bool>>,
        first: usize,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        let key = scaled(key, scale);
        match self {
            Self::Elu1 => (elu1(key), None),
            Self::Relu => (activation::relu(key).add_scalar(RELU_FLOOR), None),
            Self::Exponential(directions) => {
                let exponents = exponents(key, directions);
                let exponents = match masked {
                    Some(masked) => {
                        let masked = masked.expand(exponents.dims());
                        exponents.mask_fill(masked, LOWEST)
                    }
                    None => exponents,
                };
                // A factor per head cancels out, too.
                let max = exponents.clone().detach().max_dim(3).max_dim(2); // [batch, kv_heads, 1, 1]
                ((exponents - max.clone()).exp(), Some(max))
            }
            &Self::Cosine(length) => (cosine(key, length, first..), None),
            Self::Taylor => (taylor(key), None),
        }
    }
}

/// `ω · x - |x|² / 2`: `[batch, heads, seq, count]`.
fn exponents(x: Tensor<4>, directions: &Tensor<4>) -> Tensor<4> {
    let half = x.clone().square().sum_dim(3).mul_scalar(0.5);
    matmul(x, directions.clone().swap_dims(2, 3)) - half
}

/// Below every exponent, so that its exponential is zero; finite, so that a fully masked head does
/// not produce NaN.
const LOWEST: f32 = -1e30;

fn scaled(tensor: Tensor<4>, factor: f64) -> Tensor<4> {
    if factor == 1.0 {
        tensor
    } else {
        tensor.mul_scalar(factor)
    }
}

/// `max(x, 0)` times the cosine, then times the sine, of the position of each row.
fn cosine(x: Tensor<4>, length: usize, positions: impl Iterator<Item = usize>) -> Tensor<4> {
    let [_, _, seq, _] = x.dims();
    let quarter = std::f64::consts::FRAC_PI_2 / length as f64;
    let positions = positions.take(seq);
    let angles: Vec<f64> = positions.map(|i| i as f64 * quarter).collect();
    let factors = |function: fn(f64) -> f64| {
        let values: Vec<f32> = angles.iter().map(|&x| function(x) as f32).collect();
        let values = TensorData::new(values, [1, 1, seq, 1]);
        Tensor::<4>::from_data(values, (&x.device(), x.dtype()))
    };
    let (cos, sin) = (factors(f64::cos), factors(f64::sin));
    // Unlike the maximum with zero of some backends, this propagates NaN.
    let is_clipped = x.clone().detach().lower_equal_elem(0.0);
    let x = x.mask_fill(is_clipped, 0.0);
    Tensor::cat(vec![x.clone() * cos, x * sin], 3)
}

/// The positions of the first query and the first key, aligned at the end, the smaller of which is
/// 0. Without negative positions, no feature of [`cosine`] is negative, so that their products do
/// not cancel.
pub(crate) fn first_positions(shape: &AttentionShape) -> [usize; 2] {
    let (seq_q, seq_k) = (shape.seq_q, shape.seq_k);
    [seq_k.saturating_sub(seq_q), seq_q.saturating_sub(seq_k)]
}

/// The number of features of [`taylor`].
pub(crate) fn taylor_count(d_head: usize) -> usize {
    1 + d_head + d_head * d_head
}

/// `1`, `x`, and the products of all pairs of elements divided by `sqrt(2)`.
fn taylor(x: Tensor<4>) -> Tensor<4> {
    let [batch, heads, seq, d_head] = x.dims();
    let ones = x.clone().slice_dim(3, 0..1).ones_like();
    let left = x.clone().mul_scalar(std::f64::consts::FRAC_1_SQRT_2);
    let left = left.reshape([batch, heads, seq, d_head, 1]);
    let right = x.clone().reshape([batch, heads, seq, 1, d_head]);
    let pairs = (left * right).reshape([batch, heads, seq, d_head * d_head]);
    Tensor::cat(vec![ones, x, pairs], 3)
}

/// `x + 1` above zero, `exp(x)` below.
fn elu1(x: Tensor<4>) -> Tensor<4> {
    let above = activation::relu(x.clone());
    let below = x - above.clone();
    above + below.exp()
}

impl RandomFeatures {
    /// `count` features sampled with `seed`.
    pub fn new(count: usize, seed: u64) -> Self {
        Self { count, seed }
    }

    /// The vectors `ω` on the device of a query, in its compute dtype: `[1, 1, count, d_head]`.
    fn tensor(self, query: &Tensor<4>) -> Tensor<4> {
        let [.., d_head] = query.dims();
        static MEMO: Memo<(RandomFeatures, usize), Vec<f32>> = Memo::new();
        let directions = MEMO.get((self, d_head), |_| self.directions(d_head));
        let directions = TensorData::new(directions.to_vec(), [1, 1, self.count, d_head]);
        Tensor::from_data(directions, (&query.device(), widened(query.dtype())))
    }

    /// The vectors `ω`, `[count, d_head]` in row-major order.
    pub fn directions(self, d_head: usize) -> Vec<f32> {
        let mut rows: Vec<f64> = Vec::with_capacity(self.count * d_head);
        for block in 0..self.count.div_ceil(d_head) {
            let first = rows.len();
            for row in 0..d_head.min(self.count - block * d_head) {
                let mut normals = Normals::new([self.seed, block as u64, row as u64]);
                let mut own: Vec<f64> = (0..d_head).map(|_| normals.next()).collect();
                // Gram-Schmidt, with the norm restored afterwards.
                let length = norm(&own);
                for other in rows[first..].chunks_exact(d_head) {
                    let along = dot(&own, other) / dot(other, other);
                    own.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
                }
                let factor = length / norm(&own);
                rows.extend(own.into_iter().map(|x| x * factor));
            }
        }
        rows.into_iter().map(|x| x as f32).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_of_a_block_are_orthogonal() {
        let d_head = 8;
        let rows = RandomFeatures::new(20, 5).directions(d_head);
        let rows: Vec<Vec<f64>> = rows
            .chunks(d_head)
            .map(|row| row.iter().map(|&x| f64::from(x)).collect())
            .collect();
        assert_eq!(rows.len(), 20);
        for block in rows.chunks(d_head) {
            for (i, a) in block.iter().enumerate() {
                for b in &block[..i] {
                    let cosine = dot(a, b) / (norm(a) * norm(b));
                    assert!(cosine.abs() < 1e-6, "{cosine}");
                }
            }
        }
    }

    /// The expected squared norm is d_head, with a variance of 2 d_head.
    #[test]
    fn directions_have_the_norm_of_normal_vectors() {
        let (d_head, count) = (16, 4000);
        let rows = RandomFeatures::new(count, 1).directions(d_head);
        let squares = rows.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let mean = squares / count as f64;
        let noise = 5.0 * (2.0 * d_head as f64 / count as f64).sqrt();
        assert!((mean - d_head as f64).abs() < noise, "{mean}");
        let another = RandomFeatures::new(count, 2).directions(d_head);
        assert_ne!(rows, another);
    }
}
