//! The way back through a recurrence, as one step of autodiff.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

use super::ops::{RecurrenceForward, RecurrenceTraining, Remembered, Saved, Settings};

/// Where the gradient by the last state waits until the one by the hidden states is there.
type Waiting<B> = Arc<Mutex<Option<FloatTensor<B>>>>;

/// What the backward pass starts from.
#[derive(Debug, Clone)]
struct State<B: Backend> {
    saved: Saved<B>,
    d_last: Waiting<B>,
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
        let d_last = state
            .d_last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let got = B::recurrence_backward(state.saved, d_outputs, d_last, &state.settings);
        let by_parent = [got.projected, got.recurrent, got.biases, got.initial];
        for (parent, gradient) in ops.parents.into_iter().zip(by_parent) {
            if let Some(parent) = parent {
                to.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// The last state is made a child of the hidden states, so that its gradient, if there is
/// one, has arrived when the step above is taken: one pass over the places does for both.
#[derive(Debug)]
struct FromLast;

impl<B: Backend> Backward<B, 1> for FromLast {
    type State = (Waiting<B>, Shape, B::Device);

    fn backward(self, ops: Ops<Self::State, 1>, to: &mut Gradients, _: &mut Checkpointer) {
        let (waiting, shape, device) = ops.state;
        let arrived = to.consume::<B>(&ops.node);
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrived);
        let [outputs] = ops.parents;
        if let Some(outputs) = outputs {
            // They may have no gradient of their own; the step above expects one.
            let zeros = B::float_zeros(shape, &device, FloatDType::F32);
            to.register::<B>(outputs.id, zeros);
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
                let waiting = Waiting::<B>::default();
                let state = State {
                    saved: Saved {
                        recurrent,
                        initial,
                        outputs: outputs.clone(),
                        kept,
                    },
                    d_last: Arc::clone(&waiting),
                    settings,
                };
                let (shape, device) = (outputs.shape(), outputs.device());
                let outputs = prep.finish(state, outputs);
                let last = match Backward::<B, 1>::prepare::<C>(FromLast, [outputs.node()])
                    .compute_bound()
                    .stateful()
                {
                    OpsKind::Tracked(prep) => prep.finish((waiting, shape, device), last),
                    OpsKind::UnTracked(prep) => prep.finish(last),
                };
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
