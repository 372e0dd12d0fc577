//! The op that every backend has: tiled attention forward, and its backward.
//!
//! The bodies here are portable: right on any backend, with nothing larger than a
//! tile held at a time. Backends that can do better have a file of their own.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::call::{Arrived, InputGradients, Inputs, Saved, TiledSettings};
use super::portable;

/// Tiled attention forward.
///
/// Query, key, value and bias are shaped as the settings say, and `f32`; or of a half type
/// where the backend has kernels for that, and then so is the context. The log-sum-exp and the
/// statistics are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait TiledForward: Backend {
    /// Context `[batch, heads, seq_q, d_value]`, log-sum-exp `[batch, heads, seq_q, 1]` and
    /// [softmax statistics](Saved::stats) `[batch, heads, seq_q, 2]`.
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn tiled_forward(
        #[extension_type] inputs: Inputs<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        portable::forward::<Self>(inputs, &settings)
    }
}

/// Tiled attention backward. Only autodiff calls it, on the backend inside.
pub(crate) trait TiledBackward: Backend {
    /// The gradients, from those that arrive.
    fn tiled_backward(
        saved: Saved<Self>,
        arrived: Arrived<Self>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        portable::backward::<Self>(saved, arrived, settings)
    }
}
