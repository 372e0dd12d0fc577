//! Layer normalisation: Ba, Kiros and Hinton, [Layer
//! Normalization](https://arxiv.org/abs/1607.06450), 2016.
//!
//! ```text
//! y = (x - mean) · r · γ + β        r = 1 / sqrt(variance + ε)
//! dx = r · (γ dy - mean(γ dy) - z · mean(γ dy · z))        z = (x - mean) · r
//! ```
//!
//! RMS normalisation takes the mean as zero: Zhang and Sennrich, [Root Mean Square Layer
//! Normalization](https://arxiv.org/abs/1910.07467), 2019.
//!
//! ```text
//! y = x · r · γ        r = 1 / sqrt(mean(x²) + ε)
//! dx = r · (γ dy - z · mean(γ dy · z))        z = x · r
//! ```
//!
//! Saved for the backward pass are `x` and two values per row: the mean and `r`.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::nn::LayerNorm;
use burn::tensor::Tensor;

use self::cpu::Mean;
use self::ops::LayerNormOp;
use crate::hosts::location::{is_on_host, location};
use crate::precision::{cast, is_f32_or_half, widen};

/// Applies a [`LayerNorm`] module in one pass over memory, forward and backward. Half-precision
/// tensors are computed in `f32` and rounded at the end. `epsilon` must be the one of the module,
/// whose field is private.
///
/// # Shapes
///
/// - input: `[.., d_model]`
/// - output: same shape as the input
///
/// # Panics
///
/// If the last dimension is not the module's, or the devices differ.
pub fn layer_norm<const D: usize>(norm: &LayerNorm, epsilon: f64, input: Tensor<D>) -> Tensor<D> {
    let gamma = norm.gamma.val();
    let [d_model] = gamma.dims();
    let got = input.dims();
    assert!(
        got.last() == Some(&d_model),
        "layer norm: the last dimension must be {d_model}, got {got:?}"
    );
    let (expected, device) = (gamma.device(), input.device());
    assert!(
        expected == device,
        "layer norm: the input must be on the device of the module, {expected:?}, got {device:?}"
    );
    let has_kernel = is_f32_or_half(input.dtype()) && is_f32_or_half(gamma.dtype());
    if !has_kernel || location(&input).is_none() || location(&gamma).is_none() {
        return norm.forward(input);
    }
    let dtype = input.dtype();
    let beta = match &norm.beta {
        Some(beta) => widen(beta.val()),
        None => widen(gamma.zeros_like()),
    };
    let output = <Dispatch as LayerNormOp>::fused_layer_norm(
        widen(input).into_dispatch(),
        widen(gamma).into_dispatch(),
        beta.into_dispatch(),
        epsilon,
        Mean::Subtracted,
    );
    cast(Tensor::from_dispatch(output), dtype)
}

/// RMS normalisation of the last dimension with the factors `gamma`, in one pass over memory on the
/// CPU, forward and backward. Half-precision tensors are computed in `f32` and rounded at the end.
///
/// # Shapes
///
/// - gamma: `[d_model]`
/// - input: `[.., d_model]`
/// - output: same shape as the input
///
/// # Panics
///
/// If the last dimension is not that of `gamma`, or the devices differ.
pub fn rms_norm<const D: usize>(gamma: Tensor<1>, epsilon: f64, input: Tensor<D>) -> Tensor<D> {
    let [d_model] = gamma.dims();
    let got = input.dims();
    assert!(
        got.last() == Some(&d_model),
        "RMS norm: the last dimension must be {d_model}, got {got:?}"
    );
    let (expected, device) = (gamma.device(), input.device());
    assert!(
        expected == device,
        "RMS norm: the input must be on the device of gamma, {expected:?}, got {device:?}"
    );
    let dtype = input.dtype();
    let is_float = is_f32_or_half(dtype) && is_f32_or_half(gamma.dtype());
    let (input, gamma) = match is_float {
        true => (widen(input), widen(gamma)),
        false => (input, gamma),
    };
    if is_float && is_on_host(&input) && is_on_host(&gamma) {
        let beta = gamma.zeros_like();
        let output = <Dispatch as LayerNormOp>::fused_layer_norm(
            input.into_dispatch(),
            gamma.into_dispatch(),
            beta.into_dispatch(),
            epsilon,
            Mean::Zero,
        );
        return cast(Tensor::from_dispatch(output), dtype);
    }
    let mean_square = input.clone().square().mean_dim(D - 1);
    let normalised = input / mean_square.add_scalar(epsilon).sqrt();
    let output = normalised * gamma.unsqueeze::<D>();
    if is_float {
        cast(output, dtype)
    } else {
        output
    }
}
