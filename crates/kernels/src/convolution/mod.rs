//! Short causal convolution of each element along a sequence, with SiLU:
//!
//! ```text
//! z_t = Σ_i w_i ∘ x_(t-i)        y_t = z_t · sigmoid(z_t)        i = 0 .. size - 1, x before the start is 0
//! g_t = dy_t · silu'(z_t)        dx_t = Σ_i w_i ∘ g_(t+i)        dw_i = Σ_t g_t ∘ x_(t-i)
//! ```
//!
//! Saved for the backward pass are `x` and `w`, from which it computes `z` again.
//!
//! Linear attention with gates applies it to queries, keys and values: Gu and Dao,
//! [Mamba](https://arxiv.org/abs/2312.00752), 2023.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::tensor::{Tensor, activation};

use self::ops::ConvolutionOp;
use crate::hosts::location::is_on_host;
use crate::precision::{cast, is_f32_or_half, widen};

/// The causal convolution above, in one pass over memory on the CPU, forward and backward.
/// Half-precision tensors are computed in `f32` and rounded at the end.
///
/// # Shapes
///
/// - input: `[batch, seq, width]`
/// - weight: `[size, width]`; row `i` is the weight of the position `i` before
/// - output: `[batch, seq, width]`
///
/// # Panics
///
/// If the widths or the devices differ, or the convolution has no weight.
pub fn causal_convolution(input: Tensor<3>, weight: Tensor<2>) -> Tensor<3> {
    let [_, _, width] = input.dims();
    let [size, got] = weight.dims();
    assert!(
        got == width && size > 0,
        "causal convolution: the weight must be [size, width = {width}] with at least one row, got {:?}",
        weight.dims()
    );
    let (expected, device) = (input.device(), weight.device());
    assert!(
        expected == device,
        "causal convolution: the weight must be on the device of the input, {expected:?}, got {device:?}"
    );
    let dtype = input.dtype();
    let is_float = is_f32_or_half(dtype) && is_f32_or_half(weight.dtype());
    if !is_float {
        return composed(input, &weight);
    }
    let (input, weight) = (widen(input), widen(weight));
    let output = if is_on_host(&input) && is_on_host(&weight) {
        let (input, weight) = (input.into_dispatch(), weight.into_dispatch());
        Tensor::from_dispatch(<Dispatch as ConvolutionOp>::fused_convolution(
            input, weight,
        ))
    } else {
        composed(input, &weight)
    };
    cast(output, dtype)
}

/// By Burn's operations.
fn composed(input: Tensor<3>, weight: &Tensor<2>) -> Tensor<3> {
    let [batch, seq, width] = input.dims();
    let [size, _] = weight.dims();
    let before = Tensor::zeros([batch, size - 1, width], (&input.device(), input.dtype()));
    let input = match size {
        1 => input,
        _ => Tensor::cat(vec![before, input], 1),
    };
    let term = |i: usize| {
        let start = size - 1 - i;
        let weight = weight.clone().slice_dim(0, i..i + 1).unsqueeze::<3>();
        input.clone().slice_dim(1, start..start + seq) * weight
    };
    activation::silu((1..size).fold(term(0), |sum, i| sum + term(i)))
}
