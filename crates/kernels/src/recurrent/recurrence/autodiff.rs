//! The way back through a recurrence, as one step of autodiff.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};

use super::call::{Saved, Settings};
use super::ops::{RecurrenceForward, RecurrenceTraining};
use crate::autodiff::{SecondGradient, Step};

/// What the backward pass starts from.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    saved: Saved<B>,
    /// The gradient by the last state.
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
                let ran = B::recurrence_forward(tensors, &settings, true);
                let d_last = SecondGradient::<B>::default();
                let state = State {
                    saved: Saved {
                        recurrent,
                        initial,
                        outputs: ran.outputs.clone(),
                        kept: ran.kept.expect("a forward pass that remembers"),
                    },
                    d_last: d_last.clone(),
                    settings,
                };
                let outputs = prep.finish(state, ran.outputs);
                let last = d_last.record::<C>(&outputs, ran.last);
                (outputs, last)
            }
            OpsKind::UnTracked(prep) => {
                let ran = B::recurrence_forward(tensors, &settings, false);
                let last = <Self as AutodiffBackend>::from_inner(ran.last);
                (prep.finish(ran.outputs), last)
            }
        }
    }
}
