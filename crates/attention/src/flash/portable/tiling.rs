//! The size of a tile, and operations on tiles that both passes share.

use std::ops::Range;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;

/// Queries and keys in a tile: large enough that a matmul of it is worth a call,
/// small enough that the scores of a tile (256 KB a head) are cheap to hold.
pub(super) const TILE: usize = 256;

/// Stands for minus infinity in the scores of hidden keys: infinities are not part of what
/// WGSL promises, and two of them make a NaN. Half as large as the largest number, so that a
/// difference of two scores is finite.
pub(super) const LOWEST: f32 = -2e38;

/// The least score of a key that is not hidden, however negative its bias is.
pub(super) const LEAST_VISIBLE: f32 = -1e38;

/// The ranges of the tiles of a sequence.
pub(super) fn tiles(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(TILE)
        .map(move |start| start..length.min(start + TILE))
}

/// The last two dimensions swapped.
pub(super) fn transposed<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(tensor, 2, 3)
}

/// Adds to a sum, or begins it.
pub(super) fn add_to<B: Backend>(sum: &mut Option<FloatTensor<B>>, more: FloatTensor<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => B::float_add(sum, more),
        None => more,
    });
}

/// Tiles joined along a dimension.
pub(super) fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, dim),
    }
}
