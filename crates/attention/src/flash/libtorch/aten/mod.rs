//! LibTorch's own attention kernels, for CUDA devices.
//!
//! There are three: [flash](flash), in half precision, for full, causal and windowed attention;
//! [cuDNN's](cudnn), for long full or causal sequences; and the [memory-efficient](efficient) one,
//! in any precision, with a bias, key lengths and dropout. Blocks, and windows that flash does not
//! support, are [split into chunks](chunks). For other patterns, [keys are gathered](gathered). All
//! other calls use the [tile loops](crate::flash::portable).

mod call;
mod chunks;
mod cudnn;
mod efficient;
mod flash;
mod gathered;
#[cfg(test)]
mod reference;

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};

pub(super) use self::call::has_mask_or_bias;
use self::call::{BackwardInputs, EfficientArgs, KernelMask, aligned, alignment};
use self::chunks::ChunkPattern;
use crate::AttentionShape;
use crate::flash::call::{InputGrads, Inputs, OutputGrads, Outputs, Program, Saved, TiledSettings};
use crate::pattern::rule::Rule;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AtenKernel {
    Flash(KernelMask),
    Cudnn(KernelMask),
    Efficient(KernelMask),
    /// Windows or blocks in chunks.
    Chunks(ChunkPattern),
    /// The memory-efficient kernel with gathered keys.
    Gathered,
}

fn kernel_for(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> Option<AtenKernel> {
    let query = &inputs.query.tensor;
    let has_mask_or_bias = has_mask_or_bias(inputs);
    select_kernel(query.device(), query.kind(), has_mask_or_bias, settings)
}

fn aligned_tensors(inputs: &Inputs<LibTorch>) -> [Tensor; 3] {
    [&inputs.query, &inputs.key, &inputs.value].map(|tensor| aligned(&tensor.tensor))
}

/// The kernel for a call on a CUDA device in this type, if there is one.
pub(super) fn select_kernel(
    device: Device,
    kind: Kind,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<AtenKernel> {
    let shape = &settings.shape;
    let [d_head, d_value] = shape.widths();
    let is_plain = settings.program == Program::Softmax
        && settings.score_mod.is_none()
        && !settings.has_relative_bias
        && settings.softcap.is_none();
    let step = alignment(kind);
    let is_aligned = d_head.is_multiple_of(step) && d_value.is_multiple_of(step);
    // The limit of a CUDA grid dimension.
    let fits = shape.batch.saturating_mul(shape.heads) <= u16::MAX as usize;
    // With a single key the gradients of query and key are zero, but the kernels return rounding
    // errors.
    let has_several_keys = shape.seq_k > 1;
    if !(is_plain && is_aligned && fits && has_several_keys) {
        return None;
    }
    if settings.gather.is_some() {
        return gathered_kernel(kind, has_mask_or_bias, settings);
    }
    let mask = KernelMask::from_rule(&settings.rule, shape);
    let is_half = kind != Kind::Float;
    let has_flash = d_head == d_value && d_head <= 256 && flash::is_supported(device);
    let is_bare = !has_mask_or_bias && settings.dropout.is_none() && settings.alibi.is_none();
    if is_half && is_bare && has_flash {
        return match mask {
            Some(mask) if mask.key_lengths.is_some() => {
                efficient_kernel(kind, false, mask, settings)
            }
            Some(mask) if cudnn::is_supported(device, &mask, shape) => {
                Some(AtenKernel::Cudnn(mask))
            }
            Some(mask) => Some(AtenKernel::Flash(mask)),
            None => ChunkPattern::blocks(&settings.rule, shape).map(AtenKernel::Chunks),
        };
    }
    let mask = match mask {
        Some(mask) if mask.window.is_none() && settings.alibi.is_none() => {
            return efficient_kernel(kind, has_mask_or_bias, mask, settings);
        }
        mask => mask,
    };
    let window = mask.and_then(|mask| mask.window.filter(|_| mask.key_lengths.is_none()));
    let chunks = match window {
        Some(window) => ChunkPattern::window(window, shape),
        None => ChunkPattern::blocks(&settings.rule, shape),
    };
    match chunks {
        Some(chunks) if !is_half && !has_mask_or_bias => Some(AtenKernel::Chunks(chunks)),
        _ => gathered_kernel(kind, has_mask_or_bias, settings),
    }
}

/// The memory-efficient kernel with gathered keys, if it supports the call.
fn gathered_kernel(
    kind: Kind,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<AtenKernel> {
    // Masked keys get a bias lower than any score, which f16 cannot represent.
    let is_supported = kind == Kind::Float && !has_mask_or_bias && gathered::is_supported(settings);
    is_supported.then_some(AtenKernel::Gathered)
}

/// The memory-efficient kernel for a mask without a window, if it supports the call.
fn efficient_kernel(
    kind: Kind,
    has_mask_or_bias: bool,
    mask: KernelMask,
    settings: &TiledSettings,
) -> Option<AtenKernel> {
    // Only the kernel's backward pass can reproduce the dropout mask, and it does not support the
    // gradient of a broadcast bias.
    if mask.window.is_some() || settings.dropout.is_some() && has_mask_or_bias {
        return None;
    }
    // Masked keys get a bias lower than any score, which f16 cannot represent. With fully masked
    // rows, the bf16 kernel returned NaN gradients.
    let is_half = kind != Kind::Float;
    if is_half && has_mask_or_bias || kind == Kind::Half && mask.key_lengths.is_some() {
        return None;
    }
    Some(AtenKernel::Efficient(mask))
}

pub(super) fn forward(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> Outputs<LibTorch> {
    let tensors = aligned_tensors(inputs);
    outputs(match kernel_for(inputs, settings) {
        Some(AtenKernel::Flash(mask)) => flash::forward(&tensors, &mask, settings),
        Some(AtenKernel::Cudnn(mask)) => cudnn::forward(&tensors, &mask, settings),
        Some(AtenKernel::Chunks(pattern)) => chunks::forward(&tensors, pattern, settings),
        Some(AtenKernel::Gathered) => gathered::forward(&tensors, settings),
        Some(AtenKernel::Efficient(mask)) => {
            let args = EfficientArgs::new(inputs, &mask, &tensors[0], settings);
            efficient::forward(&tensors, &args, &settings.shape)
        }
        None => unreachable!("the caller checks that the call is supported"),
    })
}

/// The outputs of the kernels, whose backward passes use the log-sum-exp as statistics.
pub(super) fn outputs(results: [Tensor; 2]) -> Outputs<LibTorch> {
    let [context, log_sum_exp] = results.map(TchTensor::new);
    // A clone that shares the reference count: burn-tch writes in place to unshared tensors.
    let stats = log_sum_exp.clone();
    (context, log_sum_exp, stats)
}

/// Whether the result of the kernels is exact. They multiply the values of masked keys by zero,
/// which propagates NaN, and their backward passes use the log-sum-exp, which has no precision left
/// for the sum of the exponentials if scores are large. Synchronises with the device.
pub(super) fn is_exact(
    [key, value]: [&TchTensor; 2],
    log_sum_exp: &TchTensor,
    may_mask: bool,
) -> bool {
    let (key, value, log_sum_exp) = (&key.tensor, &value.tensor, &log_sum_exp.tensor);
    if log_sum_exp.numel() == 0 {
        return true;
    }
    // At this bound the rounding of the log-sum-exp changes weights by as much as that of half
    // precision does, or by 6e-5.
    let bound = match key.kind() {
        Kind::Float => 1024.0,
        _ => 65_536.0,
    };
    let fully_masked = log_sum_exp.le(efficient::FULLY_MASKED);
    let mut exact = max_abs(&log_sum_exp.masked_fill(&fully_masked, 0.0)).le(bound);
    if may_mask {
        exact = exact.logical_and(&max_abs(key).isfinite());
        exact = exact.logical_and(&max_abs(value).isfinite());
    }
    exact.int64_value(&[]) != 0
}

/// Whether an element is NaN or infinite. Synchronises with the device.
pub(super) fn has_non_finite(tensors: [&TchTensor; 2]) -> bool {
    let mut finite = tensors
        .iter()
        .filter(|tensor| tensor.tensor.numel() > 0)
        .map(|tensor| max_abs(&tensor.tensor).isfinite());
    let Some(first) = finite.next() else {
        return false;
    };
    let all = finite.fold(first, |all, next| all.logical_and(&next));
    all.int64_value(&[]) == 0
}

/// The maximum absolute value, in one pass; propagates NaN.
fn max_abs(tensor: &Tensor) -> Tensor {
    let (min, max) = tensor.aminmax(None::<i64>, false);
    max.maximum(&min.neg())
}

/// Whether a rule lets every query of a call attend to every key, as the causal rule does in a decoding
/// step.
pub(super) fn is_full(rule: &Rule, shape: &AttentionShape) -> bool {
    KernelMask::from_rule(rule, shape) == Some(KernelMask::default())
}

/// The input gradients; `None` if the backward pass of the kernels does not support the call.
pub(super) fn backward(
    saved: &Saved<LibTorch>,
    output_grads: &OutputGrads<LibTorch>,
    settings: &TiledSettings,
) -> Option<InputGrads<LibTorch>> {
    // The kernels do not accept a gradient of the log-sum-exp.
    if output_grads.d_log_sum_exp.is_some() {
        return None;
    }
    // The kernel's bias gradient is not summed over broadcast dimensions.
    let scores: usize = settings.shape.scores().iter().product();
    let is_expanded = |bias: &TchTensor| bias.tensor.numel() == scores;
    if output_grads.needs_bias_grad && !saved.inputs.bias.as_ref().is_some_and(is_expanded) {
        return None;
    }
    let (context, d_context) = (&saved.context.tensor, &output_grads.d_context.tensor);
    assert!(
        d_context.size() == context.size()
            && d_context.kind() == context.kind()
            && d_context.device() == context.device(),
        "flash attention: the upstream gradient must be {:?} {:?} on {:?} like the context, got \
         {:?} {:?} on {:?}",
        context.kind(),
        context.size(),
        context.device(),
        d_context.kind(),
        d_context.size(),
        d_context.device()
    );
    let inputs = &saved.inputs;
    let tensors = aligned_tensors(inputs);
    let results = BackwardInputs {
        context,
        log_sum_exp: &saved.stats.tensor,
        d_context,
    };
    let (grads, d_bias) = match kernel_for(inputs, settings)? {
        AtenKernel::Flash(mask) => (flash::backward(&tensors, &results, &mask, settings), None),
        AtenKernel::Cudnn(mask) => (cudnn::backward(&tensors, &results, &mask, settings), None),
        AtenKernel::Chunks(pattern) => (
            chunks::backward(&tensors, &results, pattern, settings),
            None,
        ),
        AtenKernel::Gathered => (gathered::backward(&tensors, &results, settings), None),
        AtenKernel::Efficient(mask) => {
            let args = EfficientArgs::new(inputs, &mask, &tensors[0], settings);
            let needs_bias_grad = output_grads.needs_bias_grad;
            efficient::backward(&tensors, &results, &args, &settings.shape, needs_bias_grad)
        }
    };
    Some(InputGrads {
        qkv: grads.map(TchTensor::new),
        bias: d_bias.map(TchTensor::new),
        parameter: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(elements: &[f32]) -> TchTensor {
        let tensor = Tensor::from_slice(elements);
        TchTensor::new(tensor.reshape([1, 1, elements.len() as i64, 1]))
    }

    #[test]
    fn inexact_results_are_detected() {
        let ordinary = tensor(&[1.0, -3.0, f32::MAX]);
        let exact = |key: &[f32], log_sum_exp: &[f32], may_mask| {
            is_exact([&tensor(key), &ordinary], &tensor(log_sum_exp), may_mask)
        };
        assert!(exact(&[1.0, 2.0], &[-1000.0, 1000.0], true));
        // Large scores, from the dot products or from a bias.
        assert!(!exact(&[1.0, 2.0], &[0.0, 2000.0], true));
        assert!(!exact(&[1.0, 2.0], &[0.0, -1e9], false));
        // A fully masked row has no scores.
        assert!(exact(
            &[1.0, 2.0],
            &[0.0, efficient::MASKED_BIAS as f32],
            true
        ));
        for non_finite in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!exact(&[1.0, non_finite], &[0.0, 1.0], true));
            // Without a mask, it is part of the result.
            assert!(exact(&[1.0, non_finite], &[0.0, 1.0], false));
            assert!(has_non_finite([&ordinary, &tensor(&[non_finite])]));
        }
        assert!(!has_non_finite([&ordinary, &ordinary]));
        assert!(!has_non_finite([&ordinary, &tensor(&[])]));
        let half = TchTensor::new(ordinary.tensor.clamp(-10.0, 10.0).to_kind(Kind::Half));
        assert!(is_exact([&half, &half], &tensor(&[2000.0]), true));
    }
}
