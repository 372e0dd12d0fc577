//! Operations of the portable code that backends can override.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch};
use zoo_kernels::matmul::MatmulOps;
pub(crate) use zoo_kernels::matmul::matmul;

use crate::flash::additive;

/// Operations of the tile loops that backends can override.
pub(crate) trait TileOps: MatmulOps {
    /// The scores of [additive attention](additive::scores).
    fn mlp_scores(inputs: [FloatTensor<Self>; 3]) -> FloatTensor<Self> {
        let [query, key, vector] = inputs;
        additive::scores::<Self>(query, key, vector)
    }

    /// Their [gradients](additive::backward).
    fn mlp_scores_backward(
        inputs: [FloatTensor<Self>; 3],
        d_scores: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 3] {
        additive::backward::<Self>(inputs, d_scores)
    }
}

#[cfg(feature = "flex")]
impl TileOps for burn::backend::Flex {}

#[cfg(feature = "ndarray")]
#[allow(deprecated)] // Burn 0.23 has neither.
impl TileOps for burn::backend::NdArray {}

#[cfg(feature = "cube")]
impl TileOps for burn::backend::Cube {}

// Burn's operations, whose gradients autodiff computes.
impl TileOps for Dispatch {}
impl<B: Backend, C: CheckpointStrategy> TileOps for Autodiff<B, C> {}
