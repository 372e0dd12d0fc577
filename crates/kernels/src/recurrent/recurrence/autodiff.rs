//! The recurrence as an autodiff node.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};

use super::call::{Saved, Settings};
use super::ops::{RecurrenceForward, RecurrenceTraining};
use crate::autodiff::{SecondGradient, Step};

/// State saved for the backward pass.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    saved: Saved<B>,
    /// The gradient of the last state.
    d_last: SecondGradient<B>,
    settings: Settings,
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
        let step = Step::<B, State<B>, 4>(|state, d_outputs| {
            let d_last = state.d_last.take();
            B::recurrence_backward(state.saved, d_outputs, d_last, &state.settings)
        });
        match step.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (recurrent, initial) = (tensors[1].clone(), tensors[3].clone());
                let output = B::recurrence_forward(tensors, &settings, true);
                let d_last = SecondGradient::<B>::default();
                let state = State {
                    saved: Saved {
                        recurrent,
                        initial,
                        outputs: output.outputs.clone(),
                        activations: output.activations.expect("activations were requested"),
                    },
                    d_last: d_last.clone(),
                    settings,
                };
                let outputs = prep.finish(state, output.outputs);
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
