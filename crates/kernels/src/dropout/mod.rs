//! Dropout: Srivastava et al.,
//! [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), 2014.
//!
//! ```text
//! dropout       y = keep · x            keep is 0 with probability p, else 1 / (1 - p)
//! add_dropout   y = z + keep · x
//! relu_dropout  y = keep · max(x, 0)
//! ```
//!
//! The mask is a function of a seed and the element's index. The backward pass recomputes it or
//! derives it from the output, so no mask is saved.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last release with NdArray and LibTorch
mod ops;

use burn::backend::Dispatch;
use burn::nn::Dropout;
use burn::tensor::{Device, Distribution, Tensor, activation};

use self::cpu::Mask;
use self::ops::DropoutOp;
use crate::hosts::location::{is_host_f32, is_host_float};
use crate::precision::{cast, widen};
use crate::random::mix;

/// Applies a [`Dropout`] module, with a fused kernel if the input is in host memory.
///
/// # Shapes
///
/// - input: any shape
/// - output: same shape as the input
pub fn dropout<const D: usize>(module: &Dropout, input: Tensor<D>) -> Tensor<D> {
    if !is_host_float(&input) {
        return module.forward(input);
    }
    let Some(mask) = sample_mask(module, &input.device()) else {
        return input;
    };
    let dtype = input.dtype();
    let output = <Dispatch as DropoutOp>::fused_dropout(widen(input).into_dispatch(), mask);
    cast(Tensor::from_dispatch(output), dtype)
}

/// `base + dropout(input)`
///
/// # Shapes
///
/// - base, input: any shape, the same for both
/// - output: same shape as the input
///
/// # Panics
///
/// If shapes or devices differ.
pub fn add_dropout<const D: usize>(
    module: &Dropout,
    base: Tensor<D>,
    input: Tensor<D>,
) -> Tensor<D> {
    let dims = input.dims();
    assert!(
        base.dims() == dims,
        "add dropout: input and base must have the same shape, got {dims:?} and {:?}",
        base.dims()
    );
    assert!(
        base.device() == input.device(),
        "add dropout: base must be on the device of input, {:?}, got {:?}",
        input.device(),
        base.device()
    );
    if !is_host_f32(&base) || !is_host_f32(&input) {
        return base + dropout(module, input);
    }
    let Some(mask) = sample_mask(module, &input.device()) else {
        return base + input;
    };
    let (base, input) = (base.into_dispatch(), input.into_dispatch());
    Tensor::from_dispatch(<Dispatch as DropoutOp>::fused_add_dropout(
        base, input, mask,
    ))
}

/// `dropout(max(input, 0))`
///
/// # Shapes
///
/// - input: any shape
/// - output: same shape as the input
pub fn relu_dropout<const D: usize>(module: &Dropout, input: Tensor<D>) -> Tensor<D> {
    if !is_host_f32(&input) {
        return dropout(module, activation::relu(input));
    }
    let mask = sample_mask(module, &input.device()).unwrap_or_default();
    let output = <Dispatch as DropoutOp>::fused_relu_dropout(input.into_dispatch(), mask);
    Tensor::from_dispatch(output)
}

/// A new mask; `None` if the module is not training. Its seed is sampled on the device, and so
/// determined by the device's seed.
fn sample_mask(dropout: &Dropout, device: &Device) -> Option<Mask> {
    let is_training = dropout.training.is_enabled() && device.is_autodiff();
    (is_training && dropout.prob > 0.0).then(|| Mask {
        probability: dropout.prob,
        seed: sample_seed(device),
    })
}

/// A 64-bit seed from the device's random generator.
fn sample_seed(device: &Device) -> u64 {
    // An f32 has at most 24 random bits, so three are enough.
    let sample = Tensor::<1>::random([3], Distribution::Uniform(0.0, 1.0), device);
    let data = sample.into_data();
    data.iter::<f32>()
        .fold(0, |seed, x| mix(seed ^ u64::from(x.to_bits())))
}
