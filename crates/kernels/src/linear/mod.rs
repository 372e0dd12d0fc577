//! Linear layer with bias and activation as one op.
//!
//! ```text
//! y = f(x W + b)
//! ds = dy · f'(s)        s = x W + b
//! dx = ds Wᵀ             dW = xᵀ ds             db = Σ ds over the rows
//! ```
//!
//! Saved for the backward pass are `x`, `W`, and `y` or, for GELU, `s`.

#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::nn::Linear;
use burn::tensor::{Tensor, activation, module};

use self::ops::{LinearOp, Orientation};
pub use crate::cpu::gemm::Activation;
use crate::hosts::location::is_host_f32;
use crate::matmul::{matmul, needs_f32_matmul};

/// Applies a [`Linear`] module and an activation, with a fused kernel if the tensors are `f32` in
/// host memory. In `f32` the precision is that of `f32` on every backend, unless
/// [`allow_tf32`](crate::allow_tf32) was called.
///
/// # Shapes
///
/// - input: `[.., d_input]`
/// - output: `[.., d_output]`
///
/// # Panics
///
/// If the last dimension is not the module's, or the devices differ.
pub fn linear<const D: usize>(
    module: &Linear,
    activation: Activation,
    input: Tensor<D>,
) -> Tensor<D> {
    let weight = module.weight.val();
    let bias = module.bias.as_ref().map(|bias| bias.val());
    apply(
        "linear",
        input,
        (weight, Orientation::Rows),
        bias,
        activation,
    )
}

/// `x Wᵀ` with a weight that is stored as `[d_output, d_input]`, such as the table of an embedding
/// whose weights are tied.
///
/// # Shapes
///
/// - weight: `[d_output, d_input]`
/// - input: `[.., d_input]`
/// - output: `[.., d_output]`
///
/// # Panics
///
/// If the last dimension is not that of the weight, or the devices differ.
pub fn linear_transposed<const D: usize>(weight: Tensor<2>, input: Tensor<D>) -> Tensor<D> {
    let weight = (weight, Orientation::Columns);
    apply(
        "linear transposed",
        input,
        weight,
        None,
        Activation::Identity,
    )
}

/// `x W` for a weight `[d_input, d_output]`.
pub(crate) fn product<const D: usize>(input: Tensor<D>, weight: Tensor<2>) -> Tensor<D> {
    let weight = (weight, Orientation::Rows);
    apply("product", input, weight, None, Activation::Identity)
}

fn apply<const D: usize>(
    op: &str,
    input: Tensor<D>,
    (weight, orientation): (Tensor<2>, Orientation),
    bias: Option<Tensor<1>>,
    function: Activation,
) -> Tensor<D> {
    let [d_input, d_output] = orientation.sizes(weight.dims());
    let got = input.dims();
    assert!(
        got.last() == Some(&d_input),
        "{op}: the last dimension must be {d_input}, got {got:?}"
    );
    let (expected, device) = (weight.device(), input.device());
    assert!(
        expected == device,
        "{op}: the input must be on the device of the weight, {expected:?}, got {device:?}"
    );
    let is_f32 = is_host_f32(&input) && is_host_f32(&weight);
    if is_f32 && bias.as_ref().is_none_or(is_host_f32) {
        let (input, weight) = (input.into_dispatch(), weight.into_dispatch());
        return Tensor::from_dispatch(match bias {
            Some(bias) => {
                let bias = bias.into_dispatch();
                Dispatch::fused_linear_bias(input, weight, bias, orientation, function)
            }
            None => Dispatch::fused_linear(input, weight, orientation, function),
        });
    }
    let weight = match orientation {
        Orientation::Rows => weight,
        Orientation::Columns => weight.transpose(),
    };
    // One matmul for all rows: Burn would run a batched matmul.
    let rows = got.iter().product::<usize>() / d_input;
    let input = input.reshape([rows, d_input]);
    let output = if needs_f32_matmul(&input) {
        let product = matmul(input, weight);
        match bias {
            Some(bias) => product + bias.unsqueeze(),
            None => product,
        }
    } else {
        module::linear(input, weight, bias)
    };
    let mut shape = got;
    shape[D - 1] = d_output;
    let output = output.reshape(shape);
    match function {
        Activation::Identity => output,
        Activation::Relu => activation::relu(output),
        Activation::Tanh => activation::tanh(output),
        Activation::GeluTanh => gelu_tanh(output),
    }
}

/// `x · sigmoid(2 sqrt(2/π) · (x + 0.044715 x³))`: fewer operations than with tanh, and no power of a
/// negative number.
fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let slope = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    let square = x.clone().square();
    let factor = square.mul_scalar(0.044715 * slope).add_scalar(slope);
    x.clone() * activation::sigmoid(x * factor)
}
