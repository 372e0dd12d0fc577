//! MLP scores and their gradients, tile by tile. The backward pass saves only its inputs.

use std::ops::Range;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Shape, TensorMetadata, backend_extension};
use zoo_kernels::autodiff::{Step, record};

use super::rows;
use super::tensor_ops::cat;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use crate::matmul::TileOps;

/// Maximum number of activations of a tile (8 MiB), unless it has a single row of each example and
/// head.
const MAX_ACTIVATIONS: usize = 1 << 21;

/// The forward pass of the scores. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait AdditiveForward: Backend {
    /// `[batch, heads, rows, seq_k]` for a query `[batch, heads, rows, d]`, a key
    /// `[batch, heads, seq_k, d]` and a vector `[1, heads, rows, d]`.
    fn additive_scores(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        vector: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        scores::<Self>(query, key, vector)
    }
}

/// The backward pass of the scores.
pub(crate) trait AdditiveBackward: AdditiveForward {
    /// The gradients of query, key and vector.
    fn additive_scores_backward(
        inputs: [FloatTensor<Self>; 3],
        d_scores: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        backward::<Self>(inputs, d_scores)
    }
}

pub(crate) fn scores<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    vector: FloatTensor<B>,
) -> FloatTensor<B> {
    let tiles = row_tiles(&query, &key).into_iter().map(|rows| {
        let [query, vector] = [&query, &vector].map(|tensor| slice_rows::<B>(tensor, &rows));
        let hidden = activations::<B>(query, key.clone()); // [batch, heads, tile, seq_k, d]
        let [batch, heads, tile, seq_k, d] = hidden.shape().dims();
        let vector = B::float_reshape(vector, Shape::from([1, heads, tile, 1, d]));
        let sum = B::float_sum_dim(B::float_mul(hidden, vector), 4);
        B::float_reshape(sum, Shape::from([batch, heads, tile, seq_k]))
    });
    cat::<B>(tiles.collect(), 2)
}

/// The gradients of query, key and vector.
pub(crate) fn backward<B: Backend>(
    [query, key, vector]: [FloatTensor<B>; 3],
    d_scores: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let (mut d_queries, mut d_vectors) = (Vec::new(), Vec::new());
    let mut d_key: Option<FloatTensor<B>> = None;
    for rows in row_tiles(&query, &key) {
        let [query, vector, d_scores] =
            [&query, &vector, &d_scores].map(|tensor| slice_rows::<B>(tensor, &rows));
        let hidden = activations::<B>(query, key.clone()); // [batch, heads, tile, seq_k, d]
        let [batch, heads, tile, seq_k, d] = hidden.shape().dims();
        let d_scores = B::float_reshape(d_scores, Shape::from([batch, heads, tile, seq_k, 1]));
        let vector = B::float_reshape(vector, Shape::from([1, heads, tile, 1, d]));

        let d_vector = B::float_mul(hidden.clone(), d_scores.clone());
        let d_vector = B::float_sum_dim(B::float_sum_dim(d_vector, 3), 0);
        d_vectors.push(B::float_reshape(d_vector, Shape::from([1, heads, tile, d])));

        // tanh' = 1 - tanh²
        let d_tanh = B::float_neg(B::float_mul(hidden.clone(), hidden));
        let d_tanh = B::float_add_scalar(d_tanh, 1.0.into());
        let d_hidden = B::float_mul(B::float_mul(d_tanh, vector), d_scores);
        let d_query = B::float_sum_dim(d_hidden.clone(), 3);
        d_queries.push(B::float_reshape(
            d_query,
            Shape::from([batch, heads, tile, d]),
        ));
        let d_key_tile = B::float_sum_dim(d_hidden, 2);
        let d_key_tile = B::float_reshape(d_key_tile, Shape::from([batch, heads, seq_k, d]));
        d_key = Some(match d_key {
            Some(d_key) => B::float_add(d_key, d_key_tile),
            None => d_key_tile,
        });
    }
    let d_key = d_key.unwrap_or(key);
    [cat::<B>(d_queries, 2), d_key, cat::<B>(d_vectors, 2)]
}

/// `tanh(query_i + key_j)`: `[batch, heads, rows, seq_k, d]`.
fn activations<B: Backend>(query: FloatTensor<B>, key: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, rows, d] = query.shape().dims();
    let [_, _, seq_k, _] = key.shape().dims::<4>();
    let query = B::float_reshape(query, Shape::from([batch, heads, rows, 1, d]));
    let key = B::float_reshape(key, Shape::from([batch, heads, 1, seq_k, d]));
    B::float_tanh(B::float_add(query, key))
}

/// The rows of queries, split into tiles.
fn row_tiles<T: TensorMetadata>(query: &T, key: &T) -> Vec<Range<usize>> {
    let [batch, heads, rows, d] = query.shape().dims();
    let [_, _, seq_k, _] = key.shape().dims::<4>();
    let size = (MAX_ACTIVATIONS / (batch * heads * seq_k * d)).clamp(1, rows);
    (0..rows)
        .step_by(size)
        .map(|first| first..rows.min(first + size))
        .collect()
}

fn slice_rows<B: Backend>(tensor: &FloatTensor<B>, range: &Range<usize>) -> FloatTensor<B> {
    B::float_slice(tensor.clone(), &rows(range))
}

/// Implements both for a backend with tensors in host memory, which has CPU kernels.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
macro_rules! impl_host_backend {
    ($backend:ty) => {
        #[allow(deprecated)] // Burn 0.22 is the last to include NdArray and LibTorch, which we support.
        impl AdditiveForward for $backend {
            fn additive_scores(
                query: FloatTensor<Self>,
                key: FloatTensor<Self>,
                vector: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                if host::is_on_host::<Self>(&query) {
                    host::scores::<Self>([query, key, vector])
                } else {
                    Self::mlp_scores([query, key, vector])
                }
            }
        }

        #[allow(deprecated)] // as above
        impl AdditiveBackward for $backend {
            fn additive_scores_backward(
                inputs: [FloatTensor<Self>; 3],
                d_scores: FloatTensor<Self>,
            ) -> [FloatTensor<Self>; 3] {
                if host::is_on_host::<Self>(&d_scores) {
                    host::backward::<Self>(inputs, d_scores)
                } else {
                    Self::mlp_scores_backward(inputs, d_scores)
                }
            }
        }
    };
}

#[cfg(feature = "flex")]
impl_host_backend!(burn::backend::Flex);
#[cfg(feature = "ndarray")]
impl_host_backend!(burn::backend::NdArray);
#[cfg(feature = "tch")]
impl_host_backend!(burn::backend::LibTorch);
#[cfg(feature = "cube")]
impl AdditiveForward for burn::backend::Cube {}
#[cfg(feature = "cube")]
impl AdditiveBackward for burn::backend::Cube {}

/// The [CPU kernels](crate::flash::cpu::mlp_scores) for tensors in host memory.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod host {
    use zoo_kernels::hosts::Host;

    use super::*;
    use crate::flash::cpu::mlp_scores::{self, MlpInputs, MlpSizes};

    pub(super) fn is_on_host<B: Host>(tensor: &FloatTensor<B>) -> bool {
        B::is_on_host(tensor)
    }

    fn sizes<T: TensorMetadata>([query, key, _]: [&T; 3]) -> MlpSizes {
        let [batch, heads, rows, d] = query.shape().dims();
        let [_, _, keys, _] = key.shape().dims::<4>();
        MlpSizes {
            batch,
            heads,
            rows,
            keys,
            d,
        }
    }

    pub(super) fn scores<B: Host>(inputs: [FloatTensor<B>; 3]) -> FloatTensor<B> {
        let sizes = sizes(inputs.each_ref());
        let [query, key, vector] = inputs.each_ref().map(B::elements);
        let inputs = MlpInputs {
            query: &query,
            key: &key,
            vector: &vector,
        };
        let scores = mlp_scores::forward(inputs, sizes);
        B::from_vec(scores, &[sizes.batch, sizes.heads, sizes.rows, sizes.keys])
    }

    pub(super) fn backward<B: Host>(
        inputs: [FloatTensor<B>; 3],
        d_scores: FloatTensor<B>,
    ) -> [FloatTensor<B>; 3] {
        let sizes = sizes(inputs.each_ref());
        let [query_dims, key_dims, vector_dims] = inputs.each_ref().map(|tensor| tensor.shape());
        let [query, key, vector] = inputs.each_ref().map(B::elements);
        let inputs = MlpInputs {
            query: &query,
            key: &key,
            vector: &vector,
        };
        let [d_query, d_key, d_vector] =
            mlp_scores::backward(inputs, &B::elements(&d_scores), sizes);
        [
            B::from_vec(d_query, &query_dims),
            B::from_vec(d_key, &key_dims),
            B::from_vec(d_vector, &vector_dims),
        ]
    }
}

impl<B: AdditiveBackward, C: CheckpointStrategy> AdditiveForward for Autodiff<B, C> {
    fn additive_scores(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        vector: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        let parents = [query.node(), key.node(), vector.node()];
        let inputs = [query, key, vector].map(|tensor| tensor.into_primitive());
        let [query, key, vector] = inputs.clone();
        let scores = B::additive_scores(query, key, vector);
        let step = Step(B::additive_scores_backward);
        record::<B, C, _, 3>(step, parents, inputs, scores)
    }
}
