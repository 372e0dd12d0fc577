//! The recurrence op and its backward pass, by default with the portable kernel.

#[cfg(feature = "cube")]
use burn::backend::Cube;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, backend_extension};

use super::call::{ForwardOutput, Saved, Settings};
use super::portable;
use crate::autodiff::{SecondGradient, Step};
use crate::matmul::MatmulOps;

/// The recurrence op. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
    Cube: cfg(feature = "cube"),
)]
pub(crate) trait RecurrenceForward: Backend {
    /// The hidden states `[batch, seq, width]` and the last states `[batch, states * width]`.
    ///
    /// # Shapes
    ///
    /// - projected: `[batch, seq, gates]`
    /// - recurrent: `[width, gates / directions]`
    /// - biases: `[2, gates]`
    /// - initial: `[batch, states * width]`
    #[allow(unused_variables)] // unused without backends
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
        let output = B::recurrence_forward(tensors, &settings, false);
        (output.outputs, output.last)
    }
}

impl<B: RecurrenceTraining, C: CheckpointStrategy> RecurrenceForward for Autodiff<B, C> {
    fn recurrence(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: Settings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let tensors = [projected, recurrent, biases, initial];
        let parents = tensors.each_ref().map(|tensor| tensor.node());
        let tensors = tensors.map(|tensor| tensor.into_primitive());
        let step = Step::<B, (Saved<B>, SecondGradient<B>), 4>(|(saved, d_last), d_outputs| {
            B::recurrence_backward(saved, d_outputs, d_last.take())
        });
        match step.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (recurrent, initial) = (tensors[1].clone(), tensors[3].clone());
                let output = B::recurrence_forward(tensors, &settings, true);
                let saved = Saved {
                    recurrent,
                    initial,
                    outputs: output.outputs.clone(),
                    activations: output.activations.expect("activations were requested"),
                    settings,
                };
                let d_last = SecondGradient::<B>::default();
                let outputs = prep.finish((saved, d_last.clone()), output.outputs);
                let last = d_last.record::<C>(&outputs, output.last);
                (outputs, last)
            }
            OpsKind::UnTracked(prep) => {
                let output = B::recurrence_forward(tensors, &settings, false);
                let last = <Self as AutodiffBackend>::from_inner(output.last);
                (prep.finish(output.outputs), last)
            }
        }
    }
}

/// The recurrence with its backward pass.
pub(crate) trait RecurrenceTraining: MatmulOps {
    /// [`recurrence`](RecurrenceForward::recurrence) that optionally saves activations for the
    /// backward pass.
    fn recurrence_forward(
        tensors: [FloatTensor<Self>; 4],
        settings: &Settings,
        save_activations: bool,
    ) -> ForwardOutput<Self> {
        portable::forward::<Self>(tensors, settings, save_activations)
    }

    /// The gradients of the four tensors, from those of the hidden states and, if it was used, of
    /// the last state.
    fn recurrence_backward(
        saved: Saved<Self>,
        d_outputs: FloatTensor<Self>,
        d_last: Option<FloatTensor<Self>>,
    ) -> [FloatTensor<Self>; 4] {
        portable::backward::<Self>(saved, d_outputs, d_last)
    }
}

#[cfg(feature = "cube")]
impl RecurrenceTraining for Cube {}
