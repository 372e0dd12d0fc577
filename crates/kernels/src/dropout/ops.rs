//! The ops of the backends whose tensors lie in the host's memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::cpu::{self, Forgetting};
use crate::autodiff::{Step, record};
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

impl<B: Host, C: CheckpointStrategy> DropoutOp for Autodiff<B, C> {
    fn fused_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_dropout(input.into_primitive(), forgetting);
        let step = Step::<B, _, 1>(|forgetting, arrived| [B::fused_dropout(arrived, forgetting)]);
        record::<B, C, _, 1>(step, parents, forgetting, output)
    }

    fn fused_add_dropout(
        base: FloatTensor<Self>,
        input: FloatTensor<Self>,
        forgetting: Forgetting,
    ) -> FloatTensor<Self> {
        let parents = [base.node(), input.node()];
        let (base, input) = (base.into_primitive(), input.into_primitive());
        let output = B::fused_add_dropout(base, input, forgetting);
        let step = Step::<B, _, 2>(|forgetting, arrived: FloatTensor<B>| {
            [arrived.clone(), B::fused_dropout(arrived, forgetting)]
        });
        record::<B, C, _, 2>(step, parents, forgetting, output)
    }

    fn fused_relu_dropout(input: FloatTensor<Self>, forgetting: Forgetting) -> FloatTensor<Self> {
        let parents = [input.node()];
        let output = B::fused_relu_dropout(input.into_primitive(), forgetting);
        let state = (output.clone(), forgetting);
        record::<B, C, _, 1>(Step(relu_dropout_backward::<B>), parents, state, output)
    }
}

/// The gradient by the input of [`relu_dropout`](DropoutOp::fused_relu_dropout), from its
/// result and what arrives there.
fn relu_dropout_backward<B: Host>(
    (output, forgetting): (FloatTensor<B>, Forgetting),
    arrived: FloatTensor<B>,
) -> [FloatTensor<B>; 1] {
    assert!(
        output.shape() == arrived.shape(),
        "relu dropout: the upstream gradient must be {:?} like the result, got {:?}",
        output.shape(),
        arrived.shape()
    );
    let mut gradient = B::into_unique(arrived);
    cpu::relu_dropout_backward(
        &B::elements(&output),
        B::elements_mut(&mut gradient),
        forgetting,
    );
    [gradient]
}
