//! A bias for each relative position of query and key, `[1, heads, 1, seq_q + seq_k - 1]`.
//!
//! The pair of query `i` and key `j` has element `j - i + seq_q - 1`. A tile of such elements is a
//! view of the vector, and the gradient is a sum over diagonals; both are reshapes, without indices.

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape, Slice, TensorMetadata};
use burn::tensor::FloatDType;

use super::tensor_ops::{accumulate, cat};

/// The elements of the pairs of a tile, in the order of the last query to the first.
fn elements(seq_q: usize, queries: &Range<usize>, keys: &Range<usize>) -> Range<usize> {
    let first = keys.start + seq_q - queries.end;
    first..first + queries.len() + keys.len() - 1
}

/// The bias of a tile, `[1, heads, queries, keys]`.
pub(super) fn tile<B: Backend>(
    bias: &FloatTensor<B>,
    seq_q: usize,
    queries: &Range<usize>,
    keys: &Range<usize>,
) -> FloatTensor<B> {
    let [_, heads, _, _] = bias.shape().dims();
    let elements = elements(seq_q, queries, keys);
    let (rows, width) = (queries.len(), elements.len());
    let all = Slice::full();
    let vector = B::float_slice(bias.clone(), &[all, all, all, Slice::from(elements)]);
    // In rows that are one longer than the vector, each row is shifted by one.
    let repeated = B::float_expand(vector, Shape::from([1, heads, rows + 1, width]));
    let flat = B::float_reshape(repeated, Shape::from([1, heads, 1, (rows + 1) * width]));
    let count = Slice::from(0..rows * (width + 1));
    let shifted = B::float_slice(flat, &[all, all, all, count]);
    let shifted = B::float_reshape(shifted, Shape::from([1, heads, rows, width + 1]));
    let tile = B::float_slice(shifted, &[all, all, all, Slice::from(0..keys.len())]);
    B::float_flip(tile, &[2])
}

/// The gradient of the bias, accumulated tile by tile.
pub(super) struct RelativeBiasGradient<B: Backend> {
    dims: [usize; 4],
    seq_q: usize,
    sum: Option<FloatTensor<B>>,
}

impl<B: Backend> RelativeBiasGradient<B> {
    pub(super) fn new(dims: [usize; 4], seq_q: usize) -> Self {
        Self {
            dims,
            seq_q,
            sum: None,
        }
    }

    /// Adds the score gradients of a tile, `[batch, heads, queries, keys]`.
    pub(super) fn add(
        &mut self,
        queries: &Range<usize>,
        keys: &Range<usize>,
        d_scores: FloatTensor<B>,
    ) {
        let [_, heads, _, len] = self.dims;
        let mut sum = B::float_sum_dim(d_scores, 0);
        if heads == 1 {
            sum = B::float_sum_dim(sum, 1);
        }
        let device = sum.device();
        let zeros = |dims: [usize; 4]| B::float_zeros(Shape::from(dims), &device, FloatDType::F32);
        let elements = elements(self.seq_q, queries, keys);
        let mut parts = vec![sum_diagonals::<B>(sum)];
        if elements.start > 0 {
            parts.insert(0, zeros([1, heads, 1, elements.start]));
        }
        if elements.end < len {
            parts.push(zeros([1, heads, 1, len - elements.end]));
        }
        accumulate::<B>(&mut self.sum, cat::<B>(parts, 3));
    }

    pub(super) fn finish(self, device: &B::Device) -> FloatTensor<B> {
        let zeros = || B::float_zeros(Shape::from(self.dims), device, FloatDType::F32);
        self.sum.unwrap_or_else(zeros)
    }
}

/// The sums over the diagonals of `[a, b, rows, columns]`, from the last row's first element on:
/// `[a, b, 1, rows + columns - 1]`.
pub(in crate::flash) fn sum_diagonals<B: Backend>(tiles: FloatTensor<B>) -> FloatTensor<B> {
    let [a, b, rows, columns] = tiles.shape().dims();
    let width = rows + columns - 1;
    let zeros = Shape::from([a, b, rows, rows]);
    let zeros = B::float_zeros(zeros, &tiles.device(), FloatDType::F32);
    // In rows that are one shorter, each row is shifted by one.
    let padded = cat::<B>(vec![B::float_flip(tiles, &[2]), zeros], 3);
    let flat = B::float_reshape(padded, Shape::from([a, b, 1, rows * (width + 1)]));
    let (all, count) = (Slice::full(), Slice::from(0..rows * width));
    let shifted = B::float_slice(flat, &[all, all, all, count]);
    let shifted = B::float_reshape(shifted, Shape::from([a, b, rows, width]));
    B::float_sum_dim(shifted, 2)
}
