//! The scores of a small network, and their gradients, a tile at a time.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape, Slice, TensorMetadata, backend_extension};

/// Numbers that a tile of the network may have, 8 MiB of them, if it has more than a row
/// of each example and head.
const TILE: usize = 1 << 21;

/// Scores, forward. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(super) trait AdditiveForward: Backend {
    /// `[batch, heads, rows, seq_k]` of a query `[batch, heads, rows, d]`, a key
    /// `[batch, heads, seq_k, d]` and a vector `[1, heads, rows, d]`.
    fn additive_scores(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        vector: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        scores::<Self>(query, key, vector)
    }
}

pub(super) fn scores<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    vector: FloatTensor<B>,
) -> FloatTensor<B> {
    let rows = tiles(&query, &key);
    let tiles = rows.into_iter().map(|rows| {
        let [query, vector] = [&query, &vector].map(|tensor| taken::<B>(tensor, &rows));
        let inner = inner::<B>(query, key.clone()); // [batch, heads, tile, seq_k, d]
        let [batch, heads, tile, seq_k, d] = inner.shape().dims();
        let vector = B::float_reshape(vector, Shape::from([1, heads, tile, 1, d]));
        let sum = B::float_sum_dim(B::float_mul(inner, vector), 4);
        B::float_reshape(sum, Shape::from([batch, heads, tile, seq_k]))
    });
    cat::<B>(tiles.collect())
}

/// The gradients by query, key and vector, from that by the scores.
pub(super) fn gradients<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    vector: FloatTensor<B>,
    d_scores: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let (mut d_queries, mut d_vectors) = (Vec::new(), Vec::new());
    let mut d_key: Option<FloatTensor<B>> = None;
    for rows in tiles(&query, &key) {
        let [query, vector, d_scores] =
            [&query, &vector, &d_scores].map(|tensor| taken::<B>(tensor, &rows));
        let inner = inner::<B>(query, key.clone()); // [batch, heads, tile, seq_k, d]
        let [batch, heads, tile, seq_k, d] = inner.shape().dims();
        let d_scores = B::float_reshape(d_scores, Shape::from([batch, heads, tile, seq_k, 1]));
        let vector = B::float_reshape(vector, Shape::from([1, heads, tile, 1, d]));

        let d_vector = B::float_mul(inner.clone(), d_scores.clone());
        let d_vector = B::float_sum_dim(B::float_sum_dim(d_vector, 3), 0);
        d_vectors.push(B::float_reshape(d_vector, Shape::from([1, heads, tile, d])));

        // tanh' = 1 - tanh²
        let slope = B::float_neg(B::float_mul(inner.clone(), inner));
        let slope = B::float_add_scalar(slope, 1.0.into());
        let d_inner = B::float_mul(B::float_mul(slope, vector), d_scores);
        let d_query = B::float_sum_dim(d_inner.clone(), 3);
        d_queries.push(B::float_reshape(
            d_query,
            Shape::from([batch, heads, tile, d]),
        ));
        let more = B::float_sum_dim(d_inner, 2);
        let more = B::float_reshape(more, Shape::from([batch, heads, seq_k, d]));
        d_key = Some(match d_key {
            Some(d_key) => B::float_add(d_key, more),
            None => more,
        });
    }
    let d_key = d_key.unwrap_or(key);
    [cat::<B>(d_queries), d_key, cat::<B>(d_vectors)]
}

/// `tanh(query_i + key_j)`: `[batch, heads, rows, seq_k, d]`.
fn inner<B: Backend>(query: FloatTensor<B>, key: FloatTensor<B>) -> FloatTensor<B> {
    let [batch, heads, rows, d] = query.shape().dims();
    let [_, _, seq_k, _] = key.shape().dims::<4>();
    let query = B::float_reshape(query, Shape::from([batch, heads, rows, 1, d]));
    let key = B::float_reshape(key, Shape::from([batch, heads, 1, seq_k, d]));
    B::float_tanh(B::float_add(query, key))
}

/// Rows of queries, as many at a time as a tile has room for.
fn tiles<T: TensorMetadata>(query: &T, key: &T) -> Vec<Range<usize>> {
    let [batch, heads, rows, d] = query.shape().dims();
    let [_, _, seq_k, _] = key.shape().dims::<4>();
    let size = (TILE / (batch * heads * seq_k * d)).clamp(1, rows);
    (0..rows)
        .step_by(size)
        .map(|first| first..rows.min(first + size))
        .collect()
}

fn taken<B: Backend>(tensor: &FloatTensor<B>, rows: &Range<usize>) -> FloatTensor<B> {
    let slices = [Slice::full(), Slice::full(), Slice::from(rows.clone())];
    B::float_slice(tensor.clone(), &slices)
}

fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, 2),
    }
}

#[cfg(feature = "flex")]
impl AdditiveForward for burn::backend::Flex {}
#[cfg(feature = "ndarray")]
impl AdditiveForward for burn::backend::NdArray {}
#[cfg(feature = "tch")]
impl AdditiveForward for burn::backend::LibTorch {}
#[cfg(feature = "cube")]
impl AdditiveForward for burn::backend::Cube {}
