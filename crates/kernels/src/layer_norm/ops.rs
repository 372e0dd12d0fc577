//! The layer norm op for backends with tensors in host memory, and for LibTorch on CUDA.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::cpu::{self, Mean};
use crate::autodiff::{Step, record};
use crate::hosts::DeviceKernels;

/// Fused layer norm, and RMS norm in host memory. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait LayerNormOp: Backend {
    /// Layer norm of `input: [.., width]` with `gamma` and `beta: [width]`.
    #[allow(unused_variables)] // unused without backends
    fn fused_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        mean: Mean,
    ) -> FloatTensor<Self>;
}

impl<B: DeviceKernels> LayerNormOp for B {
    fn fused_layer_norm(
        input: FloatTensor<B>,
        gamma: FloatTensor<B>,
        beta: FloatTensor<B>,
        epsilon: f64,
        mean: Mean,
    ) -> FloatTensor<B> {
        forward::<B>(&input, &gamma, &beta, epsilon, mean).0
    }
}

impl<B: DeviceKernels, C: CheckpointStrategy> LayerNormOp for Autodiff<B, C> {
    fn fused_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        mean: Mean,
    ) -> FloatTensor<Self> {
        let parents = [input.node(), gamma.node(), beta.node()];
        let [input, gamma, beta] = [input, gamma, beta].map(|tensor| tensor.into_primitive());
        let (output, stats) = forward::<B>(&input, &gamma, &beta, epsilon, mean);
        let saved = (input, gamma, stats, mean);
        record::<B, C, _, 3>(Step(backward::<B>), parents, saved, output)
    }
}

/// Mean and reciprocal standard deviation of each row.
#[derive(Debug, Clone)]
enum RowStats<B: Backend> {
    Host(Arc<Vec<[f32; 2]>>),
    Device([FloatTensor<B>; 2]),
}

/// The output, and the statistics saved for the backward pass.
fn forward<B: DeviceKernels>(
    input: &FloatTensor<B>,
    gamma: &FloatTensor<B>,
    beta: &FloatTensor<B>,
    epsilon: f64,
    mean: Mean,
) -> (FloatTensor<B>, RowStats<B>) {
    if !B::is_on_host(input) {
        let [output, mean, rstd] = B::device_layer_norm(input, gamma, beta, epsilon);
        return (output, RowStats::Device([mean, rstd]));
    }
    let mut output = B::empty(&input.shape());
    let stats = cpu::forward(
        &B::elements(input),
        &B::elements(gamma),
        &B::elements(beta),
        epsilon,
        mean,
        B::elements_mut(&mut output),
    );
    (output, RowStats::Host(Arc::new(stats)))
}

/// The gradients of input, gamma and beta.
fn backward<B: DeviceKernels>(
    (input, gamma, stats, mean): (FloatTensor<B>, FloatTensor<B>, RowStats<B>, Mean),
    output_grad: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let stats = match stats {
        RowStats::Host(stats) => stats,
        RowStats::Device(stats) => {
            return B::device_layer_norm_backward(&input, &gamma, &stats, output_grad);
        }
    };
    // In place: each row is read before it is overwritten.
    let mut d_input = B::into_unique(output_grad);
    let gamma = B::elements(&gamma);
    let width = [gamma.len()];
    let (mut d_gamma, mut d_beta) = (B::empty(&width), B::empty(&width));
    cpu::backward(
        &B::elements(&input),
        &gamma,
        &stats,
        mean,
        B::elements_mut(&mut d_input),
        B::elements_mut(&mut d_gamma),
        B::elements_mut(&mut d_beta),
    );
    [d_input, d_gamma, d_beta]
}
