//! The way back, as one step of autodiff: the gradient is there already.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;

use super::ops::{CrossEntropyOp, scaled, with_gradient};
use super::settings::Settings;
use crate::hosts::Host;

#[derive(Debug)]
struct Compared;

impl<B: Host> Backward<B, 1> for Compared {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<FloatTensor<B>, 1>, to: &mut Gradients, _: &mut Checkpointer) {
        let arrived = to.consume::<B>(&ops.node);
        let [logits] = ops.parents;
        if let Some(logits) = logits {
            to.register::<B>(logits.id, scaled::<B>(ops.state, &arrived));
        }
    }
}

impl<B: Host, C: CheckpointStrategy> CrossEntropyOp for Autodiff<B, C> {
    fn cross_entropy(logits: FloatTensor<Self>, settings: Settings) -> FloatTensor<Self> {
        let parents = [logits.node()];
        let logits = logits.into_primitive();
        match Backward::<B, 1>::prepare::<C>(Compared, parents)
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prep) => {
                let (loss, gradient) = with_gradient::<B>(logits, &settings);
                prep.finish(gradient, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(logits, settings)),
        }
    }
}
