//! What stands in for the exponential of a product: features whose product is like it.

use burn::tensor::{Bool, Tensor, TensorData, activation};

use zoo_spec::LinearFeatures;

use super::sight::Sight;
use crate::AttentionShape;
use crate::counter::Normals;
use crate::kept::Kept;
use crate::precision::{narrow, widened};

/// What queries and keys are turned into; none of it is negative.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum FeatureMap {
    /// `elu(x) + 1`: Katharopoulos et al., 2020.
    #[default]
    Elu1,
    /// `max(x, 0)` and a thousandth, so that no query is without features:
    /// Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.
    Relu,
    /// Random features whose product is, on average, the softmax's own exponential.
    FavorPlus(RandomFeatures),
    /// The same by directions that are there already, `[count, d_head]`.
    Drawn(Box<Tensor<2>>),
}

/// Positive orthogonal random features:
///
/// ```text
/// φ(x) = exp(ω · x - |x|² / 2) / sqrt(count)      E φ(q) · φ(k) = exp(q · k)
/// ```
///
/// Each `ω` is a normal vector, as many at a time orthogonal to each other as they have
/// numbers. The error falls like `1/sqrt(count)`.
/// [`RedrawnFeatures`](crate::RedrawnFeatures) draws others from time to time.
///
/// Choromanski et al., [Performers](https://arxiv.org/abs/2009.14794), 2020.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomFeatures {
    /// How many.
    pub count: usize,
    /// Which ones.
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

/// What [`FeatureMap::Relu`] adds.
const RELU_FLOOR: f32 = 1e-3;

impl FeatureMap {
    /// The features where the query is. Panics unless they are for heads like these.
    pub(crate) fn ready(&self, op: &str, query: &Tensor<4>) -> Features {
        let [.., d_head] = query.dims();
        match self {
            Self::Elu1 => Features::Elu1,
            Self::Relu => Features::Relu,
            Self::FavorPlus(random) => {
                assert!(
                    random.count > 0,
                    "{op}: there must be random features, got 0"
                );
                Features::Exponential(Box::new(random.tensor(query)))
            }
            Self::Drawn(directions) => {
                let [count, width] = directions.dims();
                assert!(
                    count > 0 && width == d_head,
                    "{op}: the directions of random features must be [count, d_head = {d_head}], \
                     got {:?}",
                    directions.dims()
                );
                let directions = directions.as_ref().clone().reshape([1, 1, count, d_head]);
                Features::Exponential(Box::new(narrow(directions, widened(query.dtype()))))
            }
        }
    }
}

/// A [`FeatureMap`] with the numbers it needs.
#[derive(Debug, Clone)]
pub(crate) enum Features {
    Elu1,
    Relu,
    /// By these directions, `[1, 1, count, d_head]`.
    Exponential(Box<Tensor<4>>),
}

impl Features {
    /// What queries and keys are multiplied by, each.
    pub(crate) fn scale(&self, scale: Option<f64>, shape: &AttentionShape) -> [f64; 2] {
        self.scale_or(scale, shape.default_scale())
    }

    /// The same, where products are usually multiplied by `usual`.
    pub(crate) fn scale_or(&self, scale: Option<f64>, usual: f64) -> [f64; 2] {
        match self {
            // There is no score to be kept small: as they are, unless said otherwise.
            Self::Elu1 | Self::Relu => [scale.unwrap_or(1.0), 1.0],
            Self::Exponential(_) => {
                let scale = scale.unwrap_or(usual);
                let root = scale.abs().sqrt();
                [root.copysign(scale), root]
            }
        }
    }

    /// `[batch, heads, seq_q, features]`
    pub(crate) fn of_queries(&self, query: Tensor<4>, [scale, _]: [f64; 2]) -> Tensor<4> {
        let query = times(query, scale);
        match self {
            Self::Elu1 => elu1(query),
            Self::Relu => activation::relu(query).add_scalar(RELU_FLOOR),
            Self::Exponential(directions) => {
                let exponents = exponents(query, directions);
                // A factor of each query's own cancels out: the largest is made 1.
                let most = exponents.clone().detach().max_dim(3);
                exponents.sub(most).exp()
            }
        }
    }

    /// `[batch, kv_heads, seq_k, features]`, zero for hidden keys.
    pub(crate) fn of_keys(&self, key: Tensor<4>, scale: [f64; 2], sight: &Sight) -> Tensor<4> {
        let (features, _) = self.of_new_keys(key, scale, sight.hidden.clone());
        sight.clear(features)
    }

    /// The features of new keys, and the logarithm of what those of a head were divided
    /// by, where that is a choice. What is hidden does not count, however large it is.
    pub(crate) fn of_new_keys(
        &self,
        key: Tensor<4>,
        [_, scale]: [f64; 2],
        hidden: Option<Tensor<4, Bool>>,
    ) -> (Tensor<4>, Option<Tensor<4>>) {
        let key = times(key, scale);
        match self {
            Self::Elu1 => (elu1(key), None),
            Self::Relu => (activation::relu(key).add_scalar(RELU_FLOOR), None),
            Self::Exponential(directions) => {
                let exponents = exponents(key, directions);
                let seen = match hidden {
                    Some(hidden) => {
                        let hidden = hidden.expand(exponents.dims());
                        exponents.mask_fill(hidden, LOWEST)
                    }
                    None => exponents,
                };
                // A factor of all keys of a head cancels out, too.
                let most = seen.clone().detach().max_dim(3).max_dim(2); // [batch, kv_heads, 1, 1]
                ((seen - most.clone()).exp(), Some(most))
            }
        }
    }
}

/// `ω · x - |x|² / 2`: `[batch, heads, seq, count]`.
fn exponents(x: Tensor<4>, directions: &Tensor<4>) -> Tensor<4> {
    let half = x.clone().square().sum_dim(3).mul_scalar(0.5);
    x.matmul(directions.clone().swap_dims(2, 3)) - half
}

/// Below every exponent: its power is zero, and so is it when no key is seen at all.
const LOWEST: f32 = -1e30;

fn times(tensor: Tensor<4>, factor: f64) -> Tensor<4> {
    if factor == 1.0 {
        tensor
    } else {
        tensor.mul_scalar(factor)
    }
}

/// `x + 1` above zero, `exp(x)` below.
fn elu1(x: Tensor<4>) -> Tensor<4> {
    let above = activation::relu(x.clone());
    let below = x - above.clone();
    above + below.exp()
}

impl RandomFeatures {
    /// `count` of them, drawn by `seed`.
    pub fn new(count: usize, seed: u64) -> Self {
        Self { count, seed }
    }

    /// The vectors `ω` beside a query, in what it is computed in: `[1, 1, count, d_head]`.
    fn tensor(self, query: &Tensor<4>) -> Tensor<4> {
        let [.., d_head] = query.dims();
        static KEPT: Kept<(RandomFeatures, usize), Vec<f32>> = Kept::new();
        let directions = KEPT.get((self, d_head), |_| self.directions(d_head));
        let directions = TensorData::new(directions.to_vec(), [1, 1, self.count, d_head]);
        Tensor::from_data(directions, (&query.device(), widened(query.dtype())))
    }

    /// The vectors `ω`, row by row.
    pub fn directions(self, d_head: usize) -> Vec<f32> {
        let mut rows: Vec<f64> = Vec::with_capacity(self.count * d_head);
        for block in 0..self.count.div_ceil(d_head) {
            let first = rows.len();
            for row in 0..d_head.min(self.count - block * d_head) {
                let mut normals = Normals::new([self.seed, block as u64, row as u64]);
                let drawn: Vec<f64> = (0..d_head).map(|_| normals.next()).collect();
                // As long as it was drawn, but at right angles to those before it.
                let length = norm(&drawn);
                let mut own = drawn;
                for other in rows[first..].chunks_exact(d_head) {
                    let along = dot(&own, other) / dot(other, other);
                    own.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
                }
                let stretch = length / norm(&own);
                rows.extend(own.into_iter().map(|x| x * stretch));
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
    fn directions_of_a_block_are_at_right_angles() {
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

    /// Their squared length is d_head on average, with a variance of 2 d_head each.
    #[test]
    fn directions_are_as_long_as_normal_vectors() {
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
