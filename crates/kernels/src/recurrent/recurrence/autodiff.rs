//! The way back through a recurrence, as one step of autodiff.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend};

use super::call::{Remembered, Saved, Settings};
use super::ops::{RecurrenceForward, RecurrenceTraining};
use crate::autodiff::SecondGradient;

/// What the backward pass starts from.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    saved: Saved<B>,
    /// The gradient by the last state.
    d_last: SecondGradient<B>,
    settings: Settings,
}

/// The step from the hidden states back to what went in.
#[derive(Debug)]
struct FromOutputs;

impl<B: RecurrenceTraining> Backward<B, 4> for FromOutputs {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 4>, to: &mut Gradients, _: &mut Checkpointer) {
        let d_outputs = to.consume::<B>(&ops.node);
        let state = ops.state;
        let d_last = state.d_last.take();
        let got = B::recurrence_backward(state.saved, d_outputs, d_last, &state.settings);
        let by_parent = [got.projected, got.recurrent, got.biases, got.initial];
        for (parent, gradient) in ops.parents.into_iter().zip(by_parent) {
            if let Some(parent) = parent {
                to.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B, C> RecurrenceForward for Autodiff<B, C>
where
    B: RecurrenceForward + RecurrenceTraining,
    C: CheckpointStrategy,
{
    fn recurrence(
        projected: FloatTensor<Self>,
        recurrent: FloatTensor<Self>,
        biases: FloatTensor<Self>,
        initial: FloatTensor<Self>,
        settings: Settings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let tensors = [projected, recurrent, biases, initial];
        let parents = [0, 1, 2, 3].map(|at: usize| tensors[at].node());
        let [projected, recurrent, biases, initial] = tensors.map(|tensor| tensor.into_primitive());
        match Backward::<B, 4>::prepare::<C>(FromOutputs, parents)
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prep) => {
                let Remembered {
                    outputs,
                    last,
                    kept,
                } = B::recurrence_forward(
                    projected,
                    recurrent.clone(),
                    biases,
                    initial.clone(),
                    &settings,
                );
                let d_last = SecondGradient::<B>::default();
                let state = State {
                    saved: Saved {
                        recurrent,
                        initial,
                        outputs: outputs.clone(),
                        kept,
                    },
                    d_last: d_last.clone(),
                    settings,
                };
                let outputs = prep.finish(state, outputs);
                let last = d_last.record::<C>(&outputs, last);
                (outputs, last)
            }
            OpsKind::UnTracked(prep) => {
                let (outputs, last) =
                    B::recurrence(projected, recurrent, biases, initial, settings);
                let last = <Self as AutodiffBackend>::from_inner(last);
                (prep.finish(outputs), last)
            }
        }
    }
}
