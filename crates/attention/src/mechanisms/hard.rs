//! Hard attention: each query attends to a single key.
//!
//! ```text
//! best    = argmax(score)                over the visible keys
//! context = value of the best
//! ```
//!
//! Xu et al., [Show, Attend and Tell](https://arxiv.org/abs/1502.03044), 2015.
//!
//! The argmax has no gradient. In training, Gumbel noise on the scores makes the best key a sample
//! from the softmax, and gradients use the straight-through estimator:
//!
//! ```text
//! best    = argmax(score + noise)              noise = -ln(-ln(uniform))
//! weight  = 1 for the best, 0 for the others   forward
//! weight  = softmax((score + noise) / temperature)    for the gradient of the scores
//! ```
//!
//! Jang et al., [Categorical Reparameterization with
//! Gumbel-Softmax](https://arxiv.org/abs/1611.01144), 2016.

use burn::tensor::{Bool, FloatDType, Int, Tensor};
use zoo_spec::Hard;

use super::{Attention, Call, Inputs, Mode, Params};
pub use crate::analysis::weights::HardSelection;
use crate::analysis::weights::WeightFunction;
use crate::counter::{mix, random_bits, row_key};
use crate::finite::is_finite;
use crate::flash::{FlashKernel, Program, flash_with_program, kernel_of_program};
use crate::mechanisms::standard::{
    attend_with_weights, isolated_scores, may_mask, softmax, tensor_from_rows,
};
use crate::precision::widen;
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Hard {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let selection = match call.params.mode {
            Mode::Function => sampled(self, self.seed),
            Mode::Training => sampled(self, mix(self.seed ^ next_seed(&query.device()))),
            Mode::Inference => HardSelection::Best,
        };
        hard(query, key, value, selection, call.options).into()
    }

    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        tiled_kernel(tensors, sampled(self, self.seed), options)
    }

    fn weight_fn(&self, _: &Inputs, params: &Params) -> WeightFunction {
        WeightFunction::Hard(match params.mode {
            Mode::Function => sampled(self, self.seed),
            Mode::Training | Mode::Inference => HardSelection::Best,
        })
    }
}

fn sampled(hard: &Hard, seed: u64) -> HardSelection {
    HardSelection::Sampled {
        temperature: hard.temperature,
        seed,
    }
}

/// Hard attention: the weight of the selected key is 1, those of the others are 0.
///
/// A fully masked query gets zeros. Half-precision tensors are computed in `f32` and rounded once,
/// at the end. The kernels of the CPU and of CubeCL need memory that is linear in the sequence
/// length; LibTorch's operations on CUDA compute as many queries at a time as fit into a fixed amount
/// of it; without either, it materialises its weights.
///
/// Shapes and panics are those of [`flash`](crate::flash()); it also panics if the temperature is
/// not between 1e-6 and 1e6.
pub fn hard(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    selection: HardSelection,
    options: &AttentionOptions,
) -> Tensor<4> {
    check(&query, &key, &value, selection, options);
    let kernel = tiled_kernel([&query, &key, &value], selection, options);
    // LibTorch's operations would multiply non-finite elements of masked keys.
    let is_supported = kernel != Some(FlashKernel::Aten)
        || options.assume_finite
        || [&query, &key, &value].into_iter().all(is_finite);
    if kernel.is_some() && is_supported {
        let [query, key] = match selection {
            // Only the values have a gradient.
            HardSelection::Best => [query, key].map(Tensor::detach),
            HardSelection::Sampled { .. } => [query, key],
        };
        let tensors = [query, key, value];
        return flash_with_program(OP, tensors, options, Program::Hard(selection), None).context;
    }
    hard_with_weights(query, key, value, selection, options).context
}

/// The kernel that computes a call tile by tile, `None` if the weights are materialised.
fn tiled_kernel(
    tensors: [&Tensor<4>; 3],
    selection: HardSelection,
    options: &AttentionOptions,
) -> Option<FlashKernel> {
    let kernel = kernel_of_program(tensors, options, Program::Hard(selection));
    match kernel {
        FlashKernel::CpuAmx
        | FlashKernel::CpuAvx512
        | FlashKernel::CpuAvx2
        | FlashKernel::CpuPortable
        | FlashKernel::Cube
        | FlashKernel::Aten => Some(kernel),
        FlashKernel::CubeCmma
        | FlashKernel::CubeMma
        | FlashKernel::TileLoops
        | FlashKernel::Composite => None,
    }
}

/// [`hard`] that materialises its weights and returns them, too.
///
/// # Panics
///
/// As [`hard`].
pub fn hard_with_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    selection: HardSelection,
    options: &AttentionOptions,
) -> AttentionOutput {
    let shape = check(&query, &key, &value, selection, options);
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let weights = straight_through(query, key, selection, options, &shape);
    attend_with_weights(weights, value, options, &shape, stored, may_mask(options))
}

const OP: &str = "hard attention";

fn check(
    query: &Tensor<4>,
    key: &Tensor<4>,
    value: &Tensor<4>,
    selection: HardSelection,
    options: &AttentionOptions,
) -> AttentionShape {
    let shape = options.check_call(OP, [query, key, value]);
    if let HardSelection::Sampled { temperature, .. } = selection {
        // With other temperatures, values could overflow.
        assert!(
            (1e-6..=1e6).contains(&temperature),
            "{OP}: a temperature must be from 1e-6 to 1e6, got {temperature}"
        );
    }
    shape
}

/// One-hot weights with the gradient of the soft ones.
fn straight_through(
    query: Tensor<4>,
    key: Tensor<4>,
    selection: HardSelection,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    let scores = isolated_scores(query, key, options, shape, may_mask(options));
    let mask = options.pattern.dense_mask(OP, shape, &scores.device());
    match selection {
        HardSelection::Best => best(scores.detach(), mask),
        HardSelection::Sampled { temperature, seed } => {
            let scores = scores.clone() + gumbel_noise(seed, shape, &scores);
            let best = best(scores.clone().detach(), mask.clone());
            let soft = softmax(scores.div_scalar(temperature), mask);
            // Straight-through estimator: the difference is zero, but has the gradient of `soft`.
            best + (soft.clone() - soft.detach())
        }
    }
}

/// One-hot rows: 1 for the first of the largest scores, unless it is masked, and 0 for the others.
/// NaN scores stay NaN.
fn best(scores: Tensor<4>, mask: Option<Tensor<4, Bool>>) -> Tensor<4> {
    let dims = scores.dims();
    let [.., seq_k] = dims;
    let mask = mask.map(|mask| mask.expand(dims));
    let scores = match &mask {
        Some(mask) => scores.mask_fill(mask.clone(), f32::MIN),
        None => scores,
    };
    // A bias of minus infinity masks, too: then no score is as large as this.
    let max = scores.clone().max_dim(3).clamp_min(f32::MIN); // [batch, heads, seq_q, 1]
    let is_less = scores.clone().lower(max.expand(dims));
    // Backends differ in which of several equal elements argmax returns.
    let indices = Tensor::<1, Int>::arange(0..seq_k as i64, &scores.device())
        .cast(FloatDType::from(scores.dtype()))
        .reshape([1, 1, 1, seq_k])
        .expand(dims);
    let first = indices.clone().mask_fill(is_less, seq_k as f32).min_dim(3); // [batch, heads, seq_q, 1]
    let is_first = indices.equal(first.expand(dims));
    let one_hot = scores.zeros_like().mask_fill(is_first, 1.0);
    // Comparisons with NaN are false: a NaN score would silently select the first key.
    let one_hot = one_hot.mask_where(scores.clone().is_nan(), scores);
    match mask {
        Some(mask) => one_hot.mask_fill(mask, 0.0),
        None => one_hot,
    }
}

/// Gumbel noise, `[batch, heads, seq_q, seq_k]`.
fn gumbel_noise(seed: u64, shape: &AttentionShape, scores: &Tensor<4>) -> Tensor<4> {
    tensor_from_rows(shape, scores, |row, noise| {
        // Inverted, so that dropout with the same seed is independent.
        let row = row_key(!seed, row);
        noise.extend((0..shape.seq_k).map(|key| gumbel(random_bits(row, key as u32))));
    })
}

/// `-ln(-ln(u))` with `u = (bits + 0.5) / 2^32`, which is neither 0 nor 1.
fn gumbel(bits: u32) -> f32 {
    let fraction = (f64::from(bits) + 0.5) / 2f64.powi(32);
    -(-fraction.ln()).ln() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_finite() {
        assert!(gumbel(0).is_finite() && gumbel(u32::MAX).is_finite());
    }
}
