//! The op of the backends whose tensors lie in the host's memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

use super::cpu::{self, Settings};
use crate::autodiff::Step;
use crate::hosts::Host;

/// The loss, forward. The logits are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait CrossEntropyOp: Backend {
    /// The loss of `logits`, `[rows, classes]`, as `[1]`.
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn cross_entropy(logits: FloatTensor<Self>, settings: Settings) -> FloatTensor<Self>;
}

impl<B: Host> CrossEntropyOp for B {
    fn cross_entropy(logits: FloatTensor<B>, settings: Settings) -> FloatTensor<B> {
        one::<B>(cpu::loss(&B::elements(&logits), &settings))
    }
}

impl<B: Host, C: CheckpointStrategy> CrossEntropyOp for Autodiff<B, C> {
    fn cross_entropy(logits: FloatTensor<Self>, settings: Settings) -> FloatTensor<Self> {
        let parents = [logits.node()];
        let logits = logits.into_primitive();
        let step = Step::<B, _, 1>(scaled::<B>);
        match step.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (loss, gradient) = with_gradient::<B>(logits, &settings);
                prep.finish(gradient, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(logits, settings)),
        }
    }
}

/// The loss, and the logits' gradient where they were.
fn with_gradient<B: Host>(
    logits: FloatTensor<B>,
    settings: &Settings,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let mut gradient = B::into_unique(logits);
    let loss = cpu::loss_and_gradient(B::elements_mut(&mut gradient), settings);
    (one::<B>(loss), gradient)
}

/// The gradient times what arrives at the loss.
fn scaled<B: Host>(gradient: FloatTensor<B>, arrived: FloatTensor<B>) -> [FloatTensor<B>; 1] {
    let factor: f32 = B::elements(&arrived).iter().sum();
    if factor == 1.0 {
        return [gradient];
    }
    let mut gradient = B::into_unique(gradient);
    cpu::scale(B::elements_mut(&mut gradient), factor);
    [gradient]
}

fn one<B: Host>(number: f32) -> FloatTensor<B> {
    let mut tensor = B::empty(&[1]);
    B::elements_mut(&mut tensor)[0] = number;
    tensor
}
