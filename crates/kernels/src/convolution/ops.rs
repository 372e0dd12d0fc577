//! The convolution op for backends with tensors in host memory.

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::cpu::{self, Sizes};
use crate::autodiff::{Step, record};
use crate::hosts::Host;

/// Fused causal convolution of `f32` tensors in host memory.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait ConvolutionOp: Backend {
    /// Of `input: [batch, seq, width]` with `weight: [size, width]`.
    #[allow(unused_variables)] // unused without backends
    fn fused_convolution(input: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl<B: Host> ConvolutionOp for B {
    fn fused_convolution(input: FloatTensor<B>, weight: FloatTensor<B>) -> FloatTensor<B> {
        forward::<B>(&input, &weight)
    }
}

impl<B: Host, C: CheckpointStrategy> ConvolutionOp for Autodiff<B, C> {
    fn fused_convolution(input: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        let parents = [input.node(), weight.node()];
        let [input, weight] = [input, weight].map(|tensor| tensor.into_primitive());
        let output = forward::<B>(&input, &weight);
        record::<B, C, _, 2>(Step(backward::<B>), parents, (input, weight), output)
    }
}

fn sizes<B: Host>(input: &FloatTensor<B>) -> Sizes {
    let [_, seq, width] = input.shape().dims();
    Sizes { seq, width }
}

fn forward<B: Host>(input: &FloatTensor<B>, weight: &FloatTensor<B>) -> FloatTensor<B> {
    let mut output = B::empty(&input.shape());
    cpu::forward(
        sizes::<B>(input),
        &B::elements(input),
        &B::elements(weight),
        B::elements_mut(&mut output),
    );
    output
}

/// The gradients of input and weight.
fn backward<B: Host>(
    (input, weight): (FloatTensor<B>, FloatTensor<B>),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 2] {
    let (mut d_input, mut d_weight) = (B::empty(&input.shape()), B::empty(&weight.shape()));
    cpu::backward(
        sizes::<B>(&input),
        &B::elements(&input),
        &B::elements(&weight),
        &B::elements(&output_grad),
        B::elements_mut(&mut d_input),
        B::elements_mut(&mut d_weight),
    );
    [d_input, d_weight]
}
