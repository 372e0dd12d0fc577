//! The op that every backend has, and its backward.
//!
//! The bodies here are portable. Backends that can do better have a file of their own.

#[cfg(feature = "cube")]
use burn::backend::Cube;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::call::{InputGradients, Remembered, Saved, Settings};
use super::portable;

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
impl RecurrenceForward for Cube {}

#[cfg(feature = "cube")]
impl RecurrenceTraining for Cube {}
