//! LibTorch: the [CPU kernels](super::cpu) on tensors in host memory, [ATen's kernels](aten) on
//! CUDA where they support the call, else the tile loops.
//!
//! ATen's flash attention for the CPU is not used: ours supports every pattern, and its gradients
//! are exactly zero where they should be. Nor is burn-tch's `attention`: it passes masks with the
//! opposite meaning.

mod additive;
mod aten;
mod hard;

use burn::backend::libtorch::TchTensor;
use burn::backend::{LibTorch, TensorMetadata};
use burn::tensor::DType;
use zoo_kernels::cpu::InstructionSet;

use super::call::{
    InputGrads, Inputs, Optional, OutputGrads, Outputs, Program, Saved, TiledSettings,
};
use super::host;
use super::ops::{TiledBackward, TiledForward};
use super::{FlashKernel, portable};
use crate::analysis::weights::HardSelection;
use crate::matmul::TileOps;

pub(super) fn kernel_for(
    query: &TchTensor,
    dtype: DType,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> FlashKernel {
    let kind = match dtype {
        DType::F16 => tch::Kind::Half,
        DType::BF16 => tch::Kind::BFloat16,
        _ => tch::Kind::Float,
    };
    let device = query.tensor.device();
    let is_cuda = matches!(device, tch::Device::Cuda(_));
    #[cfg(test)]
    let is_cuda = is_cuda || tests::is_aten_forced();
    let is_supported = || {
        hard::selection(kind, has_mask_or_bias, settings).is_some()
            || aten::select_kernel(device, kind, has_mask_or_bias, settings).is_some()
    };
    match device {
        _ if is_cuda && !settings.is_portable && is_supported() => FlashKernel::Aten,
        tch::Device::Cpu if !is_cuda => InstructionSet::detect().into(),
        _ => FlashKernel::TileLoops,
    }
}

fn kernel_for_inputs(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> FlashKernel {
    let query = &inputs.query;
    let has_mask_or_bias = aten::has_mask_or_bias(inputs);
    kernel_for(query, query.dtype(), has_mask_or_bias, settings)
}

/// How a call on CUDA selects its keys, if it is hard attention.
fn hard_selection(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> Option<HardSelection> {
    let selection = match settings.program {
        Program::Hard(selection) => selection,
        _ => return None,
    };
    (kernel_for_inputs(inputs, settings) == FlashKernel::Aten).then_some(selection)
}

impl TileOps for LibTorch {
    fn mlp_scores([query, key, vector]: [TchTensor; 3]) -> TchTensor {
        TchTensor::new(additive::scores([
            &query.tensor,
            &key.tensor,
            &vector.tensor,
        ]))
    }

    fn mlp_scores_backward(inputs: [TchTensor; 3], d_scores: TchTensor) -> [TchTensor; 3] {
        let tensors = inputs.each_ref().map(|input| &input.tensor);
        additive::backward(tensors, &d_scores.tensor).map(TchTensor::new)
    }
}

impl TiledForward for LibTorch {
    fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        if let Some(selection) = hard_selection(&inputs, &settings) {
            return hard::forward(&inputs, selection, &settings);
        }
        match kernel_for_inputs(&inputs, &settings) {
            FlashKernel::Aten if settings.dropout.is_some() => {
                forward_with_dropout(inputs, &settings)
            }
            FlashKernel::Aten => {
                let outputs = aten::forward(&inputs, &settings);
                let may_mask = may_mask(&inputs, &settings);
                let tensors = [&inputs.key, &inputs.value];
                if settings.assume_finite || aten::is_exact(tensors, &outputs.1, may_mask) {
                    outputs
                } else {
                    forward_in_f32(inputs, &settings)
                }
            }
            FlashKernel::TileLoops => portable::forward(inputs, &settings),
            _ => host::forward(&inputs, &settings),
        }
    }
}

impl TiledBackward for LibTorch {
    fn tiled_backward(
        saved: Saved<Self>,
        output_grads: OutputGrads<Self>,
        settings: &TiledSettings,
    ) -> InputGrads<Self> {
        if let Some(selection) = hard_selection(&saved.inputs, settings) {
            return hard::backward(&saved, &output_grads, selection, settings);
        }
        match kernel_for_inputs(&saved.inputs, settings) {
            FlashKernel::Aten if settings.dropout.is_some() => {
                backward_with_dropout(saved, output_grads, settings)
            }
            // The forward pass was computed by the tile loops.
            FlashKernel::Aten if saved.stats.tensor.size()[3] == 2 => {
                backward_in_f32(saved, output_grads, settings)
            }
            FlashKernel::Aten => match aten::backward(&saved, &output_grads, settings) {
                Some(grads) => grads,
                None => backward_in_f32(saved, output_grads, settings),
            },
            FlashKernel::TileLoops => portable::backward::<Self>(saved, output_grads, settings),
            _ => host::backward::<Self>(saved, output_grads, settings),
        }
    }
}

fn may_mask(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> bool {
    aten::has_mask_or_bias(inputs) || !aten::is_full(&settings.rule, &settings.shape)
}

/// Whether no masked key or value is non-finite, so that the kernels can be used directly.
fn is_clean(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> bool {
    settings.assume_finite
        || !may_mask(inputs, settings)
        || !aten::has_non_finite([&inputs.key, &inputs.value])
}

/// Replaces non-finite elements of keys and values by zeros.
fn with_finite_inputs(inputs: Inputs<LibTorch>) -> Inputs<LibTorch> {
    Inputs {
        key: zero_non_finite(&inputs.key),
        value: zero_non_finite(&inputs.value),
        ..inputs
    }
}

/// The tile loops in `f32`, for calls that ATen's kernels do not compute exactly.
fn forward_in_f32(inputs: Inputs<LibTorch>, settings: &TiledSettings) -> Outputs<LibTorch> {
    let stored = inputs.query.tensor.kind();
    let (context, log_sum_exp, stats) = portable::forward(to_f32(inputs), settings);
    (to_kind(context, stored), log_sum_exp, stats)
}

fn to_f32(inputs: Inputs<LibTorch>) -> Inputs<LibTorch> {
    let to_f32 = |tensor| to_kind(tensor, tch::Kind::Float);
    Inputs {
        query: to_f32(inputs.query),
        key: to_f32(inputs.key),
        value: to_f32(inputs.value),
        bias: match inputs.bias {
            Optional::None => Optional::None,
            Optional::Tensor(bias) => Optional::Tensor(to_f32(bias)),
        },
        ..inputs
    }
}

/// ATen's kernel with dropout, whose mask only ATen can reproduce. Non-finite elements are replaced
/// by zeros before, and rows that attend to one become NaN afterwards.
fn forward_with_dropout(inputs: Inputs<LibTorch>, settings: &TiledSettings) -> Outputs<LibTorch> {
    if is_clean(&inputs, settings) {
        return aten::forward(&inputs, settings);
    }
    let (context, log_sum_exp, _) = aten::forward(&with_finite_inputs(inputs.clone()), settings);
    let without_dropout = TiledSettings {
        dropout: None,
        ..settings.clone()
    };
    let (exact, ..) = forward_in_f32(inputs, &without_dropout);
    let non_finite_rows = exact.tensor.isfinite().all_dim(3, true).logical_not();
    let [context, log_sum_exp] =
        [context, log_sum_exp].map(|tensor| tensor.tensor.masked_fill(&non_finite_rows, f64::NAN));
    aten::outputs([context, log_sum_exp])
}

fn zero_non_finite(tensor: &TchTensor) -> TchTensor {
    let tensor = &tensor.tensor;
    TchTensor::new(tensor.masked_fill(&tensor.isfinite().logical_not(), 0.0))
}

fn to_kind(tensor: TchTensor, kind: tch::Kind) -> TchTensor {
    TchTensor::new(tensor.tensor.to_kind(kind))
}

/// The backward pass with dropout, whose mask only ATen can reproduce. ATen does not accept a
/// gradient of the log-sum-exp. The log-sum-exp does not depend on dropout, so its contribution is
/// computed separately without it.
fn backward_with_dropout(
    mut saved: Saved<LibTorch>,
    output_grads: OutputGrads<LibTorch>,
    settings: &TiledSettings,
) -> InputGrads<LibTorch> {
    let context_grads = OutputGrads {
        d_context: output_grads.d_context.clone(),
        d_log_sum_exp: None,
        needs_bias_grad: false,
    };
    if !is_clean(&saved.inputs, settings) {
        saved.inputs = with_finite_inputs(saved.inputs);
    }
    let mut grads = aten::backward(&saved, &context_grads, settings)
        .expect("ATen supports the backward pass with dropout and without a bias");
    if output_grads.d_log_sum_exp.is_none() {
        return grads;
    }
    let log_sum_exp_grads = OutputGrads {
        d_context: TchTensor::new(output_grads.d_context.tensor.zeros_like()),
        ..output_grads
    };
    let without_dropout = TiledSettings {
        dropout: None,
        ..settings.clone()
    };
    let other = backward_in_f32(saved, log_sum_exp_grads, &without_dropout);
    for (grad, other) in grads.qkv.iter_mut().zip(other.qkv) {
        *grad = TchTensor::new(&grad.tensor + other.tensor);
    }
    grads
}

/// The tile loops in `f32`, for a forward pass that may have been in half precision.
fn backward_in_f32(
    mut saved: Saved<LibTorch>,
    mut output_grads: OutputGrads<LibTorch>,
    settings: &TiledSettings,
) -> InputGrads<LibTorch> {
    let stats = &saved.stats.tensor;
    // ATen's statistics are the log-sum-exp: a maximum with a sum of one.
    if stats.size()[3] == 1 {
        let stats = tch::Tensor::cat(&[stats.shallow_clone(), stats.ones_like()], 3);
        saved.stats = TchTensor::new(stats);
    }
    let stored = saved.inputs.query.tensor.kind();
    if stored == tch::Kind::Float {
        return portable::backward::<LibTorch>(saved, output_grads, settings);
    }
    saved.inputs = to_f32(saved.inputs);
    saved.context = to_kind(saved.context, tch::Kind::Float);
    output_grads.d_context = to_kind(output_grads.d_context, tch::Kind::Float);
    let grads = portable::backward::<LibTorch>(saved, output_grads, settings);
    InputGrads {
        qkv: grads.qkv.map(|grad| to_kind(grad, stored)),
        bias: grads.bias.map(|bias| to_kind(bias, stored)),
        parameter: grads.parameter,
    }
}

#[cfg(test)]
mod tests;
