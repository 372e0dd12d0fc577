//! Autodiff nodes for ops with a hand-written backward pass.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

/// An autodiff step that computes the gradients of all its parents from a saved state and the
/// output gradient.
#[derive(Debug)]
pub struct Step<B: Backend, S, const PARENTS: usize>(
    /// Computes the gradients from the state and the output gradient.
    pub fn(S, FloatTensor<B>) -> [FloatTensor<B>; PARENTS],
);

impl<B, S, const PARENTS: usize> Backward<B, PARENTS> for Step<B, S, PARENTS>
where
    B: Backend,
    S: Clone + Send + Debug + 'static,
{
    type State = S;

    fn backward(self, ops: Ops<S, PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let Self(backward) = self;
        let output_grad = grads.consume::<B>(&ops.node);
        let parent_grads = backward(ops.state, output_grad);
        for (parent, gradient) in ops.parents.into_iter().zip(parent_grads) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Registers an op's output with its parents and the state saved for the backward pass.
pub fn record<B, C, S, const PARENTS: usize>(
    step: Step<B, S, PARENTS>,
    parents: [NodeGuard; PARENTS],
    state: S,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    S: Clone + Send + Debug + 'static,
{
    match step.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(state, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    }
}

/// The gradient of an op's second output, stored until the gradient of the first is available, so
/// that one backward pass handles both.
#[derive(Debug, Clone)]
pub struct SecondGradient<B: Backend>(Arc<Mutex<Option<FloatTensor<B>>>>);

impl<B: Backend> Default for SecondGradient<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B: Backend> SecondGradient<B> {
    /// Takes the stored gradient; `None` if the second output was not used.
    pub fn take(&self) -> Option<FloatTensor<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Registers the second output as a child of the first, so that its gradient is stored before
    /// the backward pass of the first runs.
    pub fn record<C: CheckpointStrategy>(
        &self,
        first: &FloatTensor<Autodiff<B, C>>,
        second: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        let like = first.primitive();
        let dtype = FloatDType::from(like.dtype());
        let state = (self.clone(), like.shape(), dtype, like.device());
        // Returns zeros for the first output: its backward pass needs a gradient even if it was not
        // used.
        let step = Step::<B, (Self, Shape, FloatDType, B::Device), 1>(|state, output_grad| {
            let (slot, shape, dtype, device) = state;
            *slot.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(output_grad);
            [B::float_zeros(shape, &device, dtype)]
        });
        record::<B, C, _, 1>(step, [first.node()], state, second)
    }
}
