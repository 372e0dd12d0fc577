//! Ops with a gradient written by hand, as steps of autodiff.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Shape, TensorMetadata};
use burn::tensor::FloatDType;

/// Records what was computed from its parents, with the state that the backward pass starts from.
pub fn record<B, C, Step, const PARENTS: usize>(
    step: Step,
    parents: [NodeGuard; PARENTS],
    state: Step::State,
    output: FloatTensor<B>,
) -> FloatTensor<Autodiff<B, C>>
where
    B: Backend,
    C: CheckpointStrategy,
    Step: Backward<B, PARENTS>,
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
        record::<B, C, _, 1>(FromSecond, [first.node()], state, second)
    }
}

/// The step from the second output to the first.
#[derive(Debug)]
struct FromSecond;

impl<B: Backend> Backward<B, 1> for FromSecond {
    type State = (SecondGradient<B>, Shape, FloatDType, B::Device);

    fn backward(self, ops: Ops<Self::State, 1>, to: &mut Gradients, _: &mut Checkpointer) {
        let (waiting, shape, dtype, device) = ops.state;
        let arrived = to.consume::<B>(&ops.node);
        *waiting.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(arrived);
        let [first] = ops.parents;
        if let Some(first) = first {
            // It may have no gradient of its own; its backward pass expects one.
            to.register::<B>(first.id, B::float_zeros(shape, &device, dtype));
        }
    }
}
