//! The op that every backend has: tiled attention forward, and its backward.
//!
//! The bodies here are portable: right on any backend, with nothing larger than a
//! tile held at a time. Backends that can do better have a file of their own.

use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, ExtensionType, backend_extension};

use super::portable;
use crate::pattern::rule::Rule;
use crate::{AttentionShape, Dropout};

/// What the op is told besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct TiledSettings {
    pub(crate) shape: AttentionShape,
    pub(crate) rule: Arc<Rule>,
    pub(crate) scale: f64,
    pub(crate) softcap: Option<f64>,
    /// A slope for each query head.
    pub(crate) alibi: Option<Arc<[f32]>>,
    pub(crate) dropout: Option<Dropout>,
    /// Whether masked keys and values may be assumed to be finite, and scores of ordinary size.
    /// Only LibTorch's kernels for CUDA gain by it.
    #[cfg_attr(not(feature = "tch"), allow(dead_code))]
    pub(crate) assume_finite: bool,
    /// Computed by the portable body even where there are kernels: for tests that compare
    /// the two.
    pub(crate) is_portable: bool,
}

/// A mask beyond what the settings say, if there is one.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum MoreHidden<B: Backend> {
    /// Nothing more is hidden.
    Nothing,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all: `true` hides.
    Where(BoolTensor<B>),
}

/// What is added to the scores, if anything.
#[derive(Debug, Clone, ExtensionType)]
pub(crate) enum Bias<B: Backend> {
    /// Nothing is.
    Nothing,
    /// `[batch, heads, seq_q, seq_k]`, any of them 1 to stand for all.
    Added(FloatTensor<B>),
}

impl<B: Backend> Bias<B> {
    pub(crate) fn as_ref(&self) -> Option<&FloatTensor<B>> {
        match self {
            Self::Nothing => None,
            Self::Added(bias) => Some(bias),
        }
    }
}

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
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        #[extension_type] hidden: MoreHidden<Self>,
        #[extension_type] bias: Bias<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        portable::forward::<Self>(query, key, value, hidden, bias, &settings)
    }
}

/// What the backward pass starts from.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    pub(crate) hidden: MoreHidden<B>,
    pub(crate) bias: Bias<B>,
    pub(crate) context: FloatTensor<B>,
    /// For each row, the maximum of its scores and the sum of the exponentials of what they
    /// are below it; a sum of zero if the row is fully masked. One number, the log-sum-exp,
    /// would have no digits left for the sum where scores are large. The maximum is in the
    /// units of the kernel that computed it: of log 2 on the CPU, natural elsewhere.
    pub(crate) stats: FloatTensor<B>,
}

/// What arrives at the results of the forward pass, and what is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Arrived<B: Backend> {
    /// The gradient by the context.
    pub(crate) d_context: FloatTensor<B>,
    /// The gradient by the log-sum-exp, if that was used.
    pub(crate) d_log_sum_exp: Option<FloatTensor<B>>,
    /// Whether the gradient by the bias is wanted.
    pub(crate) wants_bias: bool,
}

/// The gradients by query, key and value, and by the bias if that was wanted.
#[derive(Debug, Clone)]
pub(crate) struct InputGradients<B: Backend> {
    pub(crate) query: FloatTensor<B>,
    pub(crate) key: FloatTensor<B>,
    pub(crate) value: FloatTensor<B>,
    pub(crate) bias: Option<FloatTensor<B>>,
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
