//! The op of the backends whose tensors lie in the host's memory, or may.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, TensorMetadata, backend_extension};

use super::cpu;
use crate::autodiff::{Step, record};
use crate::hosts::DeviceKernels;

/// The norm, forward. All tensors are `f32`.
#[backend_extension(
    Autodiff,
    Flex: cfg(feature = "flex"),
    NdArray: cfg(feature = "ndarray"),
    LibTorch: cfg(feature = "tch"),
)]
pub(crate) trait LayerNormOp: Backend {
    /// `input`, `[.., width]`, normalised, by `gamma` and `beta`, `[width]`.
    #[allow(unused_variables)] // with no backend compiled in, nothing is called
    fn fused_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;
}

impl<B: DeviceKernels> LayerNormOp for B {
    fn fused_layer_norm(
        input: FloatTensor<B>,
        gamma: FloatTensor<B>,
        beta: FloatTensor<B>,
        epsilon: f64,
    ) -> FloatTensor<B> {
        forward::<B>(&input, &gamma, &beta, epsilon).0
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
        record::<B, C, _, 3>(Step(backward::<B>), parents, (input, gamma, rows), output)
    }
}

/// The mean and the factor of each row.
#[derive(Debug, Clone)]
enum Rows<B: Backend> {
    Here(Arc<Vec<[f32; 2]>>),
    Elsewhere([FloatTensor<B>; 2]),
}

/// The result, and what the way back wants to know of each row.
fn forward<B: DeviceKernels>(
    input: &FloatTensor<B>,
    gamma: &FloatTensor<B>,
    beta: &FloatTensor<B>,
    epsilon: f64,
) -> (FloatTensor<B>, Rows<B>) {
    if !B::is_on_host(input) {
        let [output, mean, factor] = B::norm(input, gamma, beta, epsilon);
        return (output, Rows::Elsewhere([mean, factor]));
    }
    let dims: Vec<usize> = input.shape().to_vec();
    let mut output = B::empty(&dims);
    let rows = cpu::forward(
        &B::elements(input),
        &B::elements(gamma),
        &B::elements(beta),
        epsilon,
        B::elements_mut(&mut output),
    );
    (output, Rows::Here(Arc::new(rows)))
}

/// The gradients by input, gamma and beta, from that which arrives.
fn backward<B: DeviceKernels>(
    (input, gamma, rows): (FloatTensor<B>, FloatTensor<B>, Rows<B>),
    arrived: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let rows = match rows {
        Rows::Here(rows) => rows,
        Rows::Elsewhere(rows) => return B::norm_backward(&input, &gamma, &rows, arrived),
    };
    // Each row is read before it is written over.
    let mut d_input = B::into_unique(arrived);
    let gamma = B::elements(&gamma);
    let width = [gamma.len()];
    let (mut d_gamma, mut d_beta) = (B::empty(&width), B::empty(&width));
    cpu::backward(
        &B::elements(&input),
        &gamma,
        &rows,
        B::elements_mut(&mut d_input),
        B::elements_mut(&mut d_gamma),
        B::elements_mut(&mut d_beta),
    );
    [d_input, d_gamma, d_beta]
}
