//! Operations on the tensors of tiles.

use burn::backend::Backend;
use burn::backend::tensor::{BoolTensor, FloatTensor};

pub(super) fn mask_or<B: Backend>(
    a: Option<BoolTensor<B>>,
    b: Option<BoolTensor<B>>,
) -> Option<BoolTensor<B>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(B::bool_or(a, b)),
        (a, b) => a.or(b),
    }
}

pub(super) fn zero_masked<B: Backend>(
    tensor: FloatTensor<B>,
    mask: Option<BoolTensor<B>>,
) -> FloatTensor<B> {
    match mask {
        Some(mask) => B::float_mask_fill(tensor, mask, 0.0.into()),
        None => tensor,
    }
}

pub(super) fn transpose<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(tensor, 2, 3)
}

pub(super) fn apply_factors<B: Backend>(
    weights: FloatTensor<B>,
    factors: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    match factors {
        Some(factors) => B::float_mul(weights, factors),
        None => weights,
    }
}

/// Adds a term to a sum that starts as `None`.
pub(super) fn accumulate<B: Backend>(sum: &mut Option<FloatTensor<B>>, term: FloatTensor<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => B::float_add(sum, term),
        None => term,
    });
}

pub(super) fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, dim),
    }
}
