//! Forgetting numbers at random while training: Srivastava et al.,
//! [Dropout](https://jmlr.org/papers/v15/srivastava14a.html), 2014.
//!
//! ```text
//! dropout       y = keep · x            keep is 0 with probability p, else 1 / (1 - p)
//! add_dropout   y = z + keep · x
//! relu_dropout  y = keep · max(x, 0)
//! ```
//!
//! Which numbers are forgotten follows from a seed and their place. The way back draws them
//! again, or sees them in the result: no mask is kept.

mod cpu;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;

use burn::backend::Dispatch;
use burn::nn::Dropout;
use burn::tensor::{Device, Distribution, Tensor, activation};

use self::cpu::Forgetting;
use self::ops::DropoutOp;
use crate::hosts::location::{can_be_at_hand, is_at_hand};
use crate::precision::{cast, widen};
use crate::random::mix;

/// What the module does, its own way where numbers are not at hand.
///
/// # Shapes
///
/// - input: any
/// - result: the same
pub fn dropout<const D: usize>(module: &Dropout, input: Tensor<D>) -> Tensor<D> {
    if !can_be_at_hand(&input) {
        return module.forward(input);
    }
    let Some(forgetting) = forgetting_of(module, &input.device()) else {
        return input;
    };
    let stored = input.dtype();
    let output = <Dispatch as DropoutOp>::fused_dropout(widen(input).into_dispatch(), forgetting);
    cast(Tensor::from_dispatch(output), stored)
}

/// `base + dropout(input)`
///
/// # Shapes
///
/// - base, input: any, the same
/// - result: the same
///
/// # Panics
///
/// If they differ.
pub fn add_dropout<const D: usize>(
    module: &Dropout,
    base: Tensor<D>,
    input: Tensor<D>,
) -> Tensor<D> {
    let dims = input.dims();
    assert!(
        base.dims() == dims,
        "add dropout: {dims:?} cannot be added to {:?}",
        base.dims()
    );
    assert!(
        base.device() == input.device(),
        "add dropout: base must be on the device of input, {:?}, got {:?}",
        input.device(),
        base.device()
    );
    if !is_at_hand(&base) || !is_at_hand(&input) {
        return base + dropout(module, input);
    }
    match forgetting_of(module, &input.device()) {
        None => base + input,
        Some(forgetting) => Tensor::from_dispatch(<Dispatch as DropoutOp>::fused_add_dropout(
            base.into_dispatch(),
            input.into_dispatch(),
            forgetting,
        )),
    }
}

/// `dropout(max(input, 0))`
///
/// # Shapes
///
/// - input: any
/// - result: the same
pub fn relu_dropout<const D: usize>(module: &Dropout, input: Tensor<D>) -> Tensor<D> {
    if !is_at_hand(&input) {
        return dropout(module, activation::relu(input));
    }
    let forgetting = forgetting_of(module, &input.device()).unwrap_or(Forgetting {
        probability: 0.0,
        seed: 0,
    });
    Tensor::from_dispatch(<Dispatch as DropoutOp>::fused_relu_dropout(
        input.into_dispatch(),
        forgetting,
    ))
}

/// What a module forgets of numbers on a device; `None` if it is not training. The seed is drawn
/// from the device, and so decided by what that was seeded with.
fn forgetting_of(dropout: &Dropout, device: &Device) -> Option<Forgetting> {
    let is_training = dropout.training.is_enabled() && device.is_autodiff();
    (is_training && dropout.prob > 0.0).then(|| Forgetting {
        probability: dropout.prob,
        seed: drawn_seed(device),
    })
}

/// 64 bits of the device's own random numbers.
fn drawn_seed(device: &Device) -> u64 {
    // A number of f32 has 24 bits of chance at most: three have more than enough.
    let drawn = Tensor::<1>::random([3], Distribution::Uniform(0.0, 1.0), device);
    let bits = drawn.into_data();
    bits.iter::<f32>()
        .fold(0, |seed, number| mix(seed ^ u64::from(number.to_bits())))
}
