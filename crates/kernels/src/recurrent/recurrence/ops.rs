//! The op that every backend has, and its backward.
//!
//! The bodies here are portable. Backends that can do better have a file of their own.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::portable;
use super::{Cell, Direction};

/// What the op is told besides its tensors.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) cell: Cell,
    pub(crate) direction: Direction,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
    pub(crate) d_hidden: usize,
    /// Numbers of a state, of all passes: `passes * d_hidden`.
    pub(crate) width: usize,
    /// Places of each row.
    pub(crate) lengths: Arc<[usize]>,
}

impl Settings {
    /// Numbers of all gates of all passes.
    pub(crate) fn gates(&self) -> usize {
        self.cell.gates() * self.width
    }
}

/// The recurrence, forward. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait RecurrenceForward: Backend {
    /// Hidden states `[batch, seq, width]` and the last states `[batch, states * width]` of
    /// `projected`, `[batch, seq, gates]`, the matrices `recurrent`, `[width, gates /
    /// passes]`, `biases`, `[2, gates]`, and the states `initial`, `[batch, states * width]`.
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn recurrence(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: Settings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        portable::forward::<Self>(projected, recurrent, biases, initial, &settings)
    }
}

/// What comes out of the forward pass where a backward one follows.
#[derive(Debug, Clone)]
pub(crate) struct Remembered<B: Backend> {
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) last: FloatTensor<B>,
    pub(crate) kept: Kept<B>,
}

/// What a body wants to see again on the way back, in an order of its own.
#[derive(Debug, Clone)]
pub(crate) enum Kept<B: Backend> {
    /// The portable one's.
    Tensor(FloatTensor<B>),
    /// That of the CPU.
    #[cfg(feature = "host")]
    Numbers(Arc<Vec<f32>>),
}

/// What the backward pass starts from.
#[derive(Debug, Clone)]
pub(crate) struct Saved<B: Backend> {
    pub(crate) recurrent: FloatTensor<B>,
    pub(crate) initial: FloatTensor<B>,
    /// Read by the CPU's body alone.
    #[cfg_attr(not(feature = "host"), expect(dead_code))]
    pub(crate) outputs: FloatTensor<B>,
    pub(crate) kept: Kept<B>,
}

/// The gradients by what went in, shaped like it.
#[derive(Debug, Clone)]
pub(crate) struct InputGradients<B: Backend> {
    pub(crate) projected: FloatTensor<B>,
    pub(crate) recurrent: FloatTensor<B>,
    pub(crate) biases: FloatTensor<B>,
    pub(crate) initial: FloatTensor<B>,
}

/// The recurrence in training. Only autodiff calls it, on the backend inside.
pub(crate) trait RecurrenceTraining: Backend {
    /// [`recurrence`](RecurrenceForward::recurrence), and what the way back needs.
    fn recurrence_forward(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: &Settings,
    ) -> Remembered<Self> {
        portable::remembering::<Self>(projected, recurrent, biases, initial, settings)
    }

    /// The gradients, from those that arrive at the hidden states and, if it was used, at
    /// the last state.
    fn recurrence_backward(
        saved: Saved<Self>,
        d_outputs: FloatTensor<Self>,
        d_last: Option<FloatTensor<Self>>,
        settings: &Settings,
    ) -> InputGradients<Self> {
        portable::backward::<Self>(saved, d_outputs, d_last, settings)
    }
}

#[cfg(feature = "cube")]
mod cube {
    use burn::backend::Cube;

    impl super::RecurrenceForward for Cube {}
    impl super::RecurrenceTraining for Cube {}
}
