//! Layer normalisation: Ba, Kiros and Hinton, [Layer
//! Normalization](https://arxiv.org/abs/1607.06450), 2016.
//!
//! ```text
//! y = (x - mean) · r · γ + β        r = 1 / sqrt(variance + ε)
//! dx = r · (γ dy - mean(γ dy) - z · mean(γ dy · z))        z = (x - mean) · r
//! ```
//!
//! What is kept is `x` and two numbers a row.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;

use burn::backend::Dispatch;
use burn::nn::LayerNorm;
use burn::tensor::Tensor;

use self::ops::LayerNormOp;
use crate::hosts::location::location;
use crate::precision::{cast, is_up_to_f32, widen};

/// What the module computes, in one pass over memory forward and one back. Half-precision
/// tensors are computed in `f32` and rounded at the end. `epsilon` is what the module was made
/// with, which it does not tell.
///
/// # Shapes
///
/// - input: `[.., d_model]`
/// - result: the same
///
/// # Panics
///
/// If the last dimension is not what the module was made for.
pub fn layer_norm<const D: usize>(norm: &LayerNorm, epsilon: f64, input: Tensor<D>) -> Tensor<D> {
    let gamma = norm.gamma.val();
    let [d_model] = gamma.dims();
    let got = input.dims();
    assert!(
        got.last() == Some(&d_model),
        "layer norm: the last dimension must be {d_model}, got {got:?}"
    );
    let (own, device) = (gamma.device(), input.device());
    assert!(
        own == device,
        "layer norm: the input must be on the device of the norm, {own:?}, got {device:?}"
    );
    let has_kernel = is_up_to_f32(input.dtype()) && is_up_to_f32(gamma.dtype());
    if !has_kernel || location(&input).is_none() || location(&gamma).is_none() {
        return norm.forward(input);
    }
    let stored = input.dtype();
    let beta = match &norm.beta {
        Some(beta) => widen(beta.val()),
        None => widen(gamma.zeros_like()),
    };
    let output = <Dispatch as LayerNormOp>::fused_layer_norm(
        widen(input).into_dispatch(),
        widen(gamma).into_dispatch(),
        beta.into_dispatch(),
        epsilon,
    );
    cast(Tensor::from_dispatch(output), stored)
}
