//! The gradient by a bias, which many examples, heads and places may share.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape};
use burn::tensor::FloatDType;

use super::call::{TILE, add_to, cat, tiles};

/// The gradient by the bias, summed up tile by tile in the bias's own shape.
pub(super) struct BiasGradient<B: Backend> {
    dims: [usize; 4],
    /// By row and column of tiles; one where one stands for all.
    tiles: Vec<Vec<Option<FloatTensor<B>>>>,
}

impl<B: Backend> BiasGradient<B> {
    pub(super) fn new(dims: [usize; 4]) -> Self {
        let [_, _, seq_q, seq_k] = dims;
        let row = vec![None; seq_k.div_ceil(TILE)];
        Self {
            dims,
            tiles: vec![row; seq_q.div_ceil(TILE)],
        }
    }

    /// Adds the gradient by the scores of a tile, `[batch, heads, tile, tile]`.
    pub(super) fn add(&mut self, row: usize, column: usize, d_scores: FloatTensor<B>) {
        let mut d_bias = d_scores;
        for (dim, &size) in self.dims.iter().enumerate() {
            if size == 1 {
                d_bias = B::float_sum_dim(d_bias, dim);
            }
        }
        let last = |tiles: usize, at: usize| at.min(tiles - 1);
        let row = last(self.tiles.len(), row);
        let column = last(self.tiles[row].len(), column);
        add_to::<B>(&mut self.tiles[row][column], d_bias);
    }

    pub(super) fn whole(self, device: &B::Device) -> FloatTensor<B> {
        let [batch, heads, seq_q, seq_k] = self.dims;
        let rows = self
            .tiles
            .into_iter()
            .zip(tiles(seq_q))
            .map(|(row, queries)| {
                let columns = row.into_iter().zip(tiles(seq_k)).map(|(tile, keys)| {
                    // What nobody sees has no gradient.
                    tile.unwrap_or_else(|| {
                        let dims = [batch, heads, queries.len(), keys.len()];
                        B::float_zeros(Shape::from(dims), device, FloatDType::F32)
                    })
                });
                cat::<B>(columns.collect(), 3)
            });
        cat::<B>(rows.collect(), 2)
    }
}
