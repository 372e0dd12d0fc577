//! The op that every backend has, and its backward.
//!
//! The bodies here are portable. Backends that can do better have a file of their own.

#[cfg(feature = "cube")]
use burn::backend::Cube;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};

use super::call::{Remembered, Saved, Settings};
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
    ) -> (FloatTensor<Self>, FloatTensor<Self>);
}

impl<B: RecurrenceTraining> RecurrenceForward for B {
    fn recurrence(
        projected: FloatTensor<B>,
        recurrent: FloatTensor<B>,
        biases: FloatTensor<B>,
        initial: FloatTensor<B>,
        settings: Settings,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let tensors = [projected, recurrent, biases, initial];
        let ran = B::recurrence_forward(tensors, &settings, false);
        (ran.outputs, ran.last)
    }
}

/// The recurrence with its backward pass.
pub(crate) trait RecurrenceTraining: Backend {
    /// [`recurrence`](RecurrenceForward::recurrence) of its four tensors, and what the way back
    /// needs if it is wanted.
    fn recurrence_forward(
        tensors: [FloatTensor<Self>; 4],
        settings: &Settings,
        remembers: bool,
    ) -> Remembered<Self> {
        portable::forward::<Self>(tensors, settings, remembers)
    }

    /// The gradients by the four tensors, from those that arrive at the hidden states and, if it
    /// was used, at the last state.
    fn recurrence_backward(
        saved: Saved<Self>,
        d_outputs: FloatTensor<Self>,
        d_last: Option<FloatTensor<Self>>,
        settings: &Settings,
    ) -> [FloatTensor<Self>; 4] {
        portable::backward::<Self>(saved, d_outputs, d_last, settings)
    }
}

#[cfg(feature = "cube")]
impl RecurrenceTraining for Cube {}
