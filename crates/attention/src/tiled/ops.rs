//! The op that every backend has: tiled attention forward, and its backward.
//!
//! The bodies here are portable: right on any backend, with nothing larger than a
//! tile held at a time. Backends that can do better have a file of their own.

use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, ExtensionType, backend_extension};

use super::portable;
use super::sight::Rule;
use crate::AttentionShape;

/// What the op is told besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct TiledSettings {
    pub(crate) shape: AttentionShape,
    pub(crate) scale: f64,
    pub(crate) rule: Arc<Rule>,
}

/// A mask beyond what the settings say, if there is one.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum MoreHidden<B: Backend> {
    /// Nothing more is hidden.
    Nothing,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all: `true` hides.
    Where(BoolTensor<B>),
}

/// Tiled attention forward.
///
/// Query, key and value are `f32`, shaped as the settings say.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait TiledForward: Backend {
    /// Context `[batch, heads, seq_q, d_value]` and log-sum-exp `[batch, heads, seq_q, 1]`.
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn tiled_forward(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] hidden: MoreHidden<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        portable::forward::<Self>(query, key, value, hidden, &settings)
    }
}

/// What the backward pass starts from.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    pub(crate) hidden: MoreHidden<B>,
    pub(crate) context: FloatTensor<B>,
    pub(crate) log_sum_exp: FloatTensor<B>,
}

/// The gradients by query, key and value.
#[derive(Debug, Clone)]
pub(crate) struct InputGradients<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
}

/// Tiled attention backward. Only autodiff calls it, on the backend inside.
pub(crate) trait TiledBackward: Backend {
    /// The gradients, from those that arrive at the context and, if it was used,
    /// at the log-sum-exp.
    fn tiled_backward(
        saved: Saved<Self>,
        d_context: FloatTensor<Self>,
        d_log_sum_exp: Option<FloatTensor<Self>>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        portable::backward::<Self>(saved, d_context, d_log_sum_exp, settings)
    }
}

#[cfg(feature = "cube")]
mod cube {
    use burn::backend::Cube;

    impl super::TiledForward for Cube {}
    impl super::TiledBackward for Cube {}
}
