//! The way back, as one step of autodiff.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend};

use super::ops::{LayerNormOp, Rows, backward, forward};
use crate::autodiff::record;
use crate::hosts::DeviceKernels;

/// What the way back starts from.
#[derive(Debug, Clone)]
struct Kept<B: Backend> {
    input: FloatTensor<B>,
    gamma: FloatTensor<B>,
    rows: Rows<B>,
}

#[derive(Debug)]
struct Normalised;

impl<B: DeviceKernels> Backward<B, 3> for Normalised {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Kept<B>, 3>, to: &mut Gradients, _: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let Kept { input, gamma, rows } = ops.state;
        let got = backward::<B>(&input, &gamma, &rows, arrived);
        for (parent, gradient) in ops.parents.into_iter().zip(got) {
            if let Some(parent) = parent {
                to.register::<B>(parent.id, gradient);
            }
        }
    }
}

impl<B: DeviceKernels, C: CheckpointStrategy> LayerNormOp for Autodiff<B, C> {
    fn fused_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self> {
        let parents = [input.node(), gamma.node(), beta.node()];
        let [input, gamma, beta] = [input, gamma, beta].map(|tensor| tensor.into_primitive());
        let (output, rows) = forward::<B>(&input, &gamma, &beta, epsilon);
        let state = Kept { input, gamma, rows };
        record::<B, C, _, 3>(Normalised, parents, state, output)
    }
}
