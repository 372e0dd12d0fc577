//! The cross-entropy op for backends with tensors in host memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, backend_extension};

use super::cpu::{self, Settings};
use crate::autodiff::Step;
use crate::hosts::Host;

/// Fused cross-entropy. The logits are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait CrossEntropyOp: Backend {
    /// The loss `[1]` of `logits: [rows, classes]`.
    #[allow(unused_variables)] // unused without backends
    fn cross_entropy(logits: FloatTensor<Self>, settings: Settings) -> FloatTensor<Self>;
}

impl<B: Host> CrossEntropyOp for B {
    fn cross_entropy(logits: FloatTensor<B>, settings: Settings) -> FloatTensor<B> {
        scalar::<B>(cpu::loss(&B::elements(&logits), &settings))
    }
}

impl<B: Host, C: CheckpointStrategy> CrossEntropyOp for Autodiff<B, C> {
    fn cross_entropy(logits: FloatTensor<Self>, settings: Settings) -> FloatTensor<Self> {
        let parents = [logits.node()];
        let logits = logits.into_primitive();
        let step = Step::<B, _, 1>(scale_gradient::<B>);
        match step.prepare::<C>(parents).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                // The gradient, in the memory of the logits.
                let mut gradient = B::into_unique(logits);
                let loss = cpu::loss_and_gradient(B::elements_mut(&mut gradient), &settings);
                prep.finish(gradient, scalar::<B>(loss))
            }
            OpsKind::UnTracked(prep) => prep.finish(B::cross_entropy(logits, settings)),
        }
    }
}

/// Multiplies the saved gradient by the output gradient.
fn scale_gradient<B: Host>(
    gradient: FloatTensor<B>,
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    let factor: f32 = B::elements(&output_grad).iter().sum();
    if factor == 1.0 {
        return [gradient];
    }
    let mut gradient = B::into_unique(gradient);
    cpu::scale(B::elements_mut(&mut gradient), factor);
    [gradient]
}

fn scalar<B: Host>(value: f32) -> FloatTensor<B> {
    let mut tensor = B::empty(&[1]);
    B::elements_mut(&mut tensor)[0] = value;
    tensor
}
