//! The ops of the backends whose tensors lie in the host's memory.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata, backend_extension};

use super::cpu;
use super::settings::Forgetting;
use crate::hosts::Host;

/// The three, forward. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait DropoutOp: Backend {
    /// `keep · input`
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn fused_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self>;

    /// `base + keep · input`, of one shape.
    #[allow(unused_variables)]
    fn fused_add_dropout(
        base: FloatTensor<Self>,
        input: FloatTensor<Self>,
        forgetting: Forgetting,
    ) -> FloatTensor<Self>;

    /// `keep · max(input, 0)`
    #[allow(unused_variables)]
    fn fused_relu_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self>;
}

impl<B: Host> DropoutOp for B {
    fn fused_dropout(input: FloatTensor<B>, forgetting: Forgetting) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::dropout(B::elements_mut(&mut output), forgetting);
        output
    }

    fn fused_add_dropout(
        base: FloatTensor<B>,
        input: FloatTensor<B>,
        forgetting: Forgetting,
    ) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::add_dropout(
            &B::elements(&base),
            B::elements_mut(&mut output),
            forgetting,
        );
        output
    }

    fn fused_relu_dropout(input: FloatTensor<B>, forgetting: Forgetting) -> FloatTensor<B> {
        let mut output = B::into_unique(input);
        cpu::relu_dropout(B::elements_mut(&mut output), forgetting);
        output
    }
}

/// The gradient by the input of [`relu_dropout`](DropoutOp::fused_relu_dropout), from its
/// result and what arrives there.
pub(super) fn relu_dropout_backward<B: Host>(
    output: &FloatTensor<B>,
    arrived: FloatTensor<B>,
    forgetting: Forgetting,
) -> FloatTensor<B> {
    assert!(
        output.shape() == arrived.shape(),
        "relu dropout: the upstream gradient must be {:?} like the result, got {:?}",
        output.shape(),
        arrived.shape()
    );
    let mut gradient = B::into_unique(arrived);
    cpu::relu_dropout_backward(
        &B::elements(output),
        B::elements_mut(&mut gradient),
        forgetting,
    );
    gradient
}
