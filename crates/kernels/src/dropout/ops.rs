//! The dropout ops for backends with tensors in host memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::cpu::{self, Mask};
use crate::autodiff::{Step, record};
use crate::hosts::Host;

/// Fused dropout. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait DropoutOp: Backend {
    /// `keep · input`
    #[allow(unused_variables)] // unused without backends
    fn fused_dropout(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self>;

    /// `base + keep · input`, of the same shape.
    #[allow(unused_variables)]
    fn fused_add_dropout(
        base: FloatTensor<Self>,
        input: FloatTensor<Self>,
        mask: Mask,
    ) -> FloatTensor<Self>;

    /// `keep · max(input, 0)`
    #[allow(unused_variables)]
    fn fused_relu_dropout(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self>;
}

impl<B: Host> DropoutOp for B {
    fn fused_dropout(input: FloatTensor<B>, mask: Mask) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::dropout(B::elements_mut(&mut output), mask);
        output
    }

    fn fused_add_dropout(
        base: FloatTensor<B>,
        input: FloatTensor<B>,
        mask: Mask,
    ) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::add_dropout(&B::elements(&base), B::elements_mut(&mut output), mask);
        output
    }

    fn fused_relu_dropout(input: FloatTensor<B>, mask: Mask) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::relu_dropout(B::elements_mut(&mut output), mask);
        output
    }
}

impl<B: Host, C: CheckpointStrategy> DropoutOp for Autodiff<B, C> {
    fn fused_dropout(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_dropout(input.into_primitive(), mask);
        let step = Step::<B, _, 1>(|mask, output_grad| [B::fused_dropout(output_grad, mask)]);
        record::<B, C, _, 1>(step, parents, mask, output)
    }

    fn fused_add_dropout(
        base: FloatTensor<Self>,
        input: FloatTensor<Self>,
        mask: Mask,
    ) -> FloatTensor<Self> {
        let parents = [base.node(), input.node()];
        let (base, input) = (base.into_primitive(), input.into_primitive());
        let output = B::fused_add_dropout(base, input, mask);
        let step = Step::<B, _, 2>(|mask, output_grad: FloatTensor<B>| {
            [output_grad.clone(), B::fused_dropout(output_grad, mask)]
        });
        record::<B, C, _, 2>(step, parents, mask, output)
    }

    fn fused_relu_dropout(input: FloatTensor<Self>, mask: Mask) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_relu_dropout(input.into_primitive(), mask);
        let state = (output.clone(), mask);
        record::<B, C, _, 1>(Step(relu_dropout_backward::<B>), parents, state, output)
    }
}

/// The input gradient of [`relu_dropout`](DropoutOp::fused_relu_dropout), from its output and the
/// output gradient.
fn relu_dropout_backward<B: Host>(
    (output, mask): (FloatTensor<B>, Mask),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    assert!(
        output.shape() == output_grad.shape(),
        "relu dropout: the output gradient must be {:?} like the output, got {:?}",
        output.shape(),
        output_grad.shape()
    );
    let mut gradient = B::into_unique(output_grad);
    cpu::relu_dropout_backward(&B::elements(&output), B::elements_mut(&mut gradient), mask);
    [gradient]
}
