//! Ops with a gradient written by hand, as steps of autodiff.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

/// A step of autodiff that computes the gradients by all its parents from a saved state and the
/// gradient by its output.
#[derive(Debug)]
pub struct Step<B: Backend, S, const PARENTS: usize>(
    /// The gradients, from the state and the gradient by the output.
    pub fn(S, FloatTensor<B>) -> [FloatTensor<B>; PARENTS],
);

impl<B, S, const PARENTS: usize> Backward<B, PARENTS> for Step<B, S, PARENTS>
where
    B: Backend,
    S: Clone + Send + Debug + 'static,
{
    type State = S;

    fn backward(self, ops: Ops<S, PARENTS>, to: &mut Gradients, _: &mut Checkpointer) {
        let Self(gradients) = self;
        let arrived = to.consume::<B>(&ops.node);
        let by_parent = gradients(ops.state, arrived);
        for (parent, gradient) in ops.parents.into_iter().zip(by_parent) {
            if let Some(parent) = parent {
                to.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// Records what was computed from its parents, with the state that the backward pass starts from.
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

/// The gradient of an op's second output, which waits until that of the first has arrived, so
/// that one backward pass does for both.
#[derive(Debug, Clone)]
pub struct SecondGradient<B: Backend>(Arc<Mutex<Option<FloatTensor<B>>>>);

impl<B: Backend> Default for SecondGradient<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B: Backend> SecondGradient<B> {
    /// What has arrived, if the second output was used.
    pub fn take(&self) -> Option<FloatTensor<B>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records the second output as a child of the first: its gradient, if there is one, has then
    /// arrived when the backward pass of the first is run.
    pub fn record<C: CheckpointStrategy>(
        &self,
        first: &FloatTensor<Autodiff<B, C>>,
        second: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        let like = first.primitive();
        let dtype = FloatDType::from(like.dtype());
        let state = (self.clone(), like.shape(), dtype, like.device());
        record::<B, C, _, 1>(Step(put_aside::<B>), [first.node()], state, second)
    }
}

/// Keeps the gradient by the second output. The first may have no gradient of its own, and its
/// backward pass expects one.
fn put_aside<B: Backend>(
    (waiting, shape, dtype, device): (SecondGradient<B>, Shape, FloatDType, B::Device),
    arrived: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    *waiting.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrived);
    [B::float_zeros(shape, &device, dtype)]
}
