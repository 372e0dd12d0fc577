//! The backend extension: tiled attention forward and backward.
//!
//! The default implementations are portable tile loops that run on any backend. Backends with
//! dedicated kernels override them in files of their own.

use burn::backend::backend_extension;
use burn::backend::tensor::FloatTensor;

use super::call::{InputGrads, Inputs, OutputGrads, Saved, TiledSettings};
use super::portable;
use crate::matmul::TileOps;

/// Tiled attention forward.
///
/// Query, key, value and bias have the shapes of the settings. They and the context are `f32`, or
/// of a half-precision type if the backend has kernels for it. The log-sum-exp and the statistics
/// are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait TiledForward: TileOps {
    /// Context `[batch, heads, seq_q, d_value]`, log-sum-exp `[batch, heads, seq_q, 1]` and
    /// [softmax statistics](Saved::stats) `[batch, heads, seq_q, 2]`.
    #[allow(unused_variables)] // unused if no backend is compiled in
    fn tiled_forward(
        #[extension_type] inputs: Inputs<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        portable::forward::<Self>(inputs, &settings)
    }
}

/// Tiled attention backward. Called by autodiff on its inner backend.
pub(crate) trait TiledBackward: TileOps {
    fn tiled_backward(
        saved: Saved<Self>,
        output_grads: OutputGrads<Self>,
        settings: &TiledSettings,
    ) -> InputGrads<Self> {
        portable::backward::<Self>(saved, output_grads, settings)
    }
}
