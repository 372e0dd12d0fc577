//! The op of the backends whose tensors lie in the host's memory, or may.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata, backend_extension};

use super::cpu;
use crate::host::Host;

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

impl<B: Host> LayerNormOp for B {
    fn fused_layer_norm(
        input: FloatTensor<B>,
        gamma: FloatTensor<B>,
        beta: FloatTensor<B>,
        epsilon: f64,
    ) -> FloatTensor<B> {
        forward::<B>(&input, &gamma, &beta, epsilon).0
    }
}

/// The mean and the factor of each row.
#[derive(Debug, Clone)]
pub(super) enum Rows<B: Backend> {
    Here(Arc<Vec<[f32; 2]>>),
    Elsewhere([FloatTensor<B>; 2]),
}

/// The result, and what the way back wants to know of each row.
pub(super) fn forward<B: Host>(
    input: &FloatTensor<B>,
    gamma: &FloatTensor<B>,
    beta: &FloatTensor<B>,
    epsilon: f64,
) -> (FloatTensor<B>, Rows<B>) {
    if !B::is_here(input) {
        let [output, mean, factor] = B::layer_norm_elsewhere(input, gamma, beta, epsilon);
        return (output, Rows::Elsewhere([mean, factor]));
    }
    let dims: Vec<usize> = input.shape().to_vec();
    let mut output = B::room(&dims);
    let rows = cpu::forward(
        &B::numbers(input),
        &B::numbers(gamma),
        &B::numbers(beta),
        epsilon,
        B::slice(&mut output),
    );
    (output, Rows::Here(Arc::new(rows)))
}

/// The gradients by input, gamma and beta, from that which arrives.
pub(super) fn backward<B: Host>(
    input: &FloatTensor<B>,
    gamma: &FloatTensor<B>,
    rows: &Rows<B>,
    arrived: FloatTensor<B>,
) -> [FloatTensor<B>; 3] {
    let rows = match rows {
        Rows::Here(rows) => rows,
        Rows::Elsewhere(rows) => {
            return B::layer_norm_backward_elsewhere(input, gamma, rows, arrived);
        }
    };
    // Each row is read before it is written over.
    let mut d_input = B::own(arrived);
    let gamma = B::numbers(gamma);
    let width = [gamma.len()];
    let (mut d_gamma, mut d_beta) = (B::room(&width), B::room(&width));
    cpu::backward(
        &B::numbers(input),
        &gamma,
        rows,
        B::slice(&mut d_input),
        B::slice(&mut d_gamma),
        B::slice(&mut d_beta),
    );
    [d_input, d_gamma, d_beta]
}
