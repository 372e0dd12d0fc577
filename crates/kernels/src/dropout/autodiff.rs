//! The ways back, each as one step of autodiff.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::FloatTensor;

use super::ops::{DropoutOp, relu_dropout_backward};
use super::settings::Forgetting;
use crate::autodiff::record;
use crate::hosts::Host;

/// From `keep · x`.
#[derive(Debug)]
struct Dropped;

impl<B: Host> Backward<B, 1> for Dropped {
    type State = Forgetting;

    fn backward(self, ops: Ops<Forgetting, 1>, to: &mut Gradients, _: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let [input] = ops.parents;
        if let Some(input) = input {
            to.register::<B>(input.id, B::fused_dropout(arrived, ops.state));
        }
    }
}

/// From `z + keep · x`.
#[derive(Debug)]
struct Added;

impl<B: Host> Backward<B, 2> for Added {
    type State = Forgetting;

    fn backward(self, ops: Ops<Forgetting, 2>, to: &mut Gradients, _: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let [base, input] = ops.parents;
        if let Some(base) = base {
            to.register::<B>(base.id, arrived.clone());
        }
        if let Some(input) = input {
            to.register::<B>(input.id, B::fused_dropout(arrived, ops.state));
        }
    }
}

/// From `keep · max(x, 0)`.
#[derive(Debug)]
struct Rectified;

impl<B: Host> Backward<B, 1> for Rectified {
    type State = (FloatTensor<B>, Forgetting);

    fn backward(self, ops: Ops<Self::State, 1>, to: &mut Gradients, _: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let (output, forgetting) = ops.state;
        let [input] = ops.parents;
        if let Some(input) = input {
            let gradient = relu_dropout_backward::<B>(&output, arrived, forgetting);
            to.register::<B>(input.id, gradient);
        }
    }
}

impl<B: Host, C: CheckpointStrategy> DropoutOp for Autodiff<B, C> {
    fn fused_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_dropout(input.into_primitive(), forgetting);
        record::<B, C, _, 1>(Dropped, parents, forgetting, output)
    }

    fn fused_add_dropout(
        base: FloatTensor<Self>,
        input: FloatTensor<Self>,
        forgetting: Forgetting,
    ) -> FloatTensor<Self> {
        let parents = [base.node(), input.node()];
        let (base, input) = (base.into_primitive(), input.into_primitive());
        let output = B::fused_add_dropout(base, input, forgetting);
        record::<B, C, _, 2>(Added, parents, forgetting, output)
    }

    fn fused_relu_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_relu_dropout(input.into_primitive(), forgetting);
        let state = (output.clone(), forgetting);
        record::<B, C, _, 1>(Rectified, parents, state, output)
    }
}
