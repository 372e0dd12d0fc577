//! The gradient of a bias, which may be broadcast over examples, heads, queries and keys.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Shape};
use burn::tensor::FloatDType;

use super::call::{TILE, Tile};
use super::relative_bias::RelativeBiasGradient;
use super::tensor_ops::{accumulate, cat};
use crate::flash::call::{TiledSettings, tiles};

/// The gradient of the bias, accumulated tile by tile.
pub(super) enum BiasGradient<B: Backend> {
    Dense(DenseGradient<B>),
    Relative(RelativeBiasGradient<B>),
}

impl<B: Backend> BiasGradient<B> {
    pub(super) fn new(dims: [usize; 4], settings: &TiledSettings) -> Self {
        if settings.has_relative_bias {
            return Self::Relative(RelativeBiasGradient::new(dims, settings.shape.seq_q));
        }
        Self::Dense(DenseGradient::new(dims))
    }

    /// Adds the score gradients of a tile, `[batch, heads, queries, keys]`.
    pub(super) fn add(&mut self, tile: &Tile, d_scores: FloatTensor<B>) {
        let Tile { queries, keys, .. } = tile;
        match self {
            Self::Dense(dense) => {
                dense.add(queries.start / TILE, keys.start / TILE, d_scores);
            }
            Self::Relative(relative) => relative.add(queries, keys, d_scores),
        }
    }

    pub(super) fn finish(self, device: &B::Device) -> FloatTensor<B> {
        match self {
            Self::Dense(dense) => dense.concat(device),
            Self::Relative(relative) => relative.finish(device),
        }
    }
}

/// In the bias's own shape.
pub(super) struct DenseGradient<B: Backend> {
    dims: [usize; 4],
    /// By row and column of tiles; a single one in broadcast dimensions.
    tiles: Vec<Vec<Option<FloatTensor<B>>>>,
}

impl<B: Backend> DenseGradient<B> {
    fn new(dims: [usize; 4]) -> Self {
        let [_, _, seq_q, seq_k] = dims;
        let row = vec![None; seq_k.div_ceil(TILE)];
        Self {
            dims,
            tiles: vec![row; seq_q.div_ceil(TILE)],
        }
    }

    fn add(&mut self, row: usize, column: usize, d_scores: FloatTensor<B>) {
        let mut d_bias = d_scores;
        for (dim, &size) in self.dims.iter().enumerate() {
            if size == 1 {
                d_bias = B::float_sum_dim(d_bias, dim);
            }
        }
        let row = row.min(self.tiles.len() - 1);
        let column = column.min(self.tiles[row].len() - 1);
        accumulate::<B>(&mut self.tiles[row][column], d_bias);
    }

    fn concat(self, device: &B::Device) -> FloatTensor<B> {
        let [batch, heads, seq_q, seq_k] = self.dims;
        let rows = self
            .tiles
            .into_iter()
            .zip(tiles(seq_q, TILE))
            .map(|(row, queries)| {
                let columns = row.into_iter().zip(tiles(seq_k, TILE)).map(|(tile, keys)| {
                    // Fully masked tiles have a zero gradient.
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
