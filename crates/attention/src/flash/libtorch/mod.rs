//! LibTorch: on the CPU the [CPU body](super::cpu), on its tensors' own memory; on CUDA
//! [ATen's](aten) where that can do it, half precision as it is; else the portable one.
//!
//! ATen's flash attention for the CPU is not used: ours takes every pattern, and its
//! gradient is exactly zero where it should be. Neither is burn-tch's `attention`: it
//! hands on masks that mean the opposite.

mod aten;

use burn::backend::libtorch::TchTensor;
use burn::backend::{LibTorch, TensorMetadata};
use burn::tensor::DType;
use zoo_kernels::cpu::InstructionSet;

use super::call::{Arrived, Bias, InputGradients, Inputs, Outputs, Saved, TiledSettings};
use super::host;
use super::ops::{TiledBackward, TiledForward};
use super::{Body, portable};
use crate::pattern::rule::Rule;

/// What computes a call for tensors where `query` is, as numbers of a type; whether more is
/// hidden or added than the settings say.
pub(super) fn body(
    query: &TchTensor,
    dtype: DType,
    has_more: bool,
    settings: &TiledSettings,
) -> Body {
    let kind = match dtype {
        DType::F16 => tch::Kind::Half,
        DType::BF16 => tch::Kind::BFloat16,
        _ => tch::Kind::Float,
    };
    let device = query.tensor.device();
    match device {
        tch::Device::Cpu => InstructionSet::detect().into(),
        tch::Device::Cuda(_)
            if !settings.is_portable && aten::can(device, kind, has_more, settings) =>
        {
            Body::Aten
        }
        _ => Body::Tiles,
    }
}

fn body_of(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> Body {
    let query = &inputs.query;
    body(query, query.dtype(), aten::has_more(inputs), settings)
}

impl TiledForward for LibTorch {
    fn tiled_forward(inputs: Inputs<Self>, settings: TiledSettings) -> Outputs<Self> {
        match body_of(&inputs, &settings) {
            Body::Aten if settings.dropout.is_some() => forward_with_dropout(inputs, &settings),
            Body::Aten => {
                let (context, log_sum_exp) = aten::forward(&inputs, &settings);
                let may_hide = may_hide(&inputs, &settings);
                let tensors = [&inputs.key, &inputs.value];
                if settings.assume_finite || aten::is_exact(tensors, &log_sum_exp, may_hide) {
                    with_log_sum_exp(context, log_sum_exp)
                } else {
                    forward_in_f32(inputs, &settings)
                }
            }
            Body::Tiles => portable::forward(inputs, &settings),
            _ => host::forward(&inputs, &settings),
        }
    }
}

impl TiledBackward for LibTorch {
    fn tiled_backward(
        saved: Saved<Self>,
        arrived: Arrived<Self>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        match body_of(&saved.inputs, settings) {
            Body::Aten if settings.dropout.is_some() => with_dropout(saved, arrived, settings),
            // What the tile loops computed.
            Body::Aten if saved.stats.tensor.size()[3] == 2 => in_f32(saved, arrived, settings),
            Body::Aten => match aten::backward(&saved, &arrived, settings) {
                Some(gradients) => gradients,
                None => in_f32(saved, arrived, settings),
            },
            Body::Tiles => portable::backward::<Self>(saved, arrived, settings),
            _ => host::backward::<Self>(saved, arrived, settings),
        }
    }
}

/// Results of ATen's kernels: their backward passes take the log-sum-exp for the statistics.
fn with_log_sum_exp(context: TchTensor, log_sum_exp: TchTensor) -> Outputs<LibTorch> {
    // Not a view of the same memory by another name: burn-tch writes to what it takes for unshared.
    let stats = log_sum_exp.clone();
    (context, log_sum_exp, stats)
}

/// Whether a key may be hidden from a query.
fn may_hide(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> bool {
    aten::has_more(inputs) || !matches!(*settings.rule, Rule::Full)
}

/// Whether a key or a value that may be hidden has to be kept from the kernels.
fn is_clean(inputs: &Inputs<LibTorch>, settings: &TiledSettings) -> bool {
    settings.assume_finite
        || !may_hide(inputs, settings)
        || !aten::has_non_finite([&inputs.key, &inputs.value])
}

/// The tensors with zeros for elements of keys and values that are not finite.
fn finite_inputs(inputs: Inputs<LibTorch>) -> Inputs<LibTorch> {
    Inputs {
        key: finite(&inputs.key),
        value: finite(&inputs.value),
        ..inputs
    }
}

/// The tile loops in `f32`, for what ATen's kernels do not compute exactly.
fn forward_in_f32(inputs: Inputs<LibTorch>, settings: &TiledSettings) -> Outputs<LibTorch> {
    let stored = inputs.query.tensor.kind();
    let (context, log_sum_exp, stats) = portable::forward(in_wide(inputs), settings);
    (to(context, stored), log_sum_exp, stats)
}

/// The tensors in `f32`.
fn in_wide(inputs: Inputs<LibTorch>) -> Inputs<LibTorch> {
    let wide = |tensor| to(tensor, tch::Kind::Float);
    Inputs {
        query: wide(inputs.query),
        key: wide(inputs.key),
        value: wide(inputs.value),
        bias: match inputs.bias {
            Bias::Nothing => Bias::Nothing,
            Bias::Added(bias) => Bias::Added(wide(bias)),
        },
        ..inputs
    }
}

/// ATen's kernel where weights are dropped, which only it knows how to do again: elements that
/// are not finite are kept from it, and what sees one is made NaN afterwards.
fn forward_with_dropout(inputs: Inputs<LibTorch>, settings: &TiledSettings) -> Outputs<LibTorch> {
    if is_clean(&inputs, settings) {
        let (context, log_sum_exp) = aten::forward(&inputs, settings);
        return with_log_sum_exp(context, log_sum_exp);
    }
    let (context, log_sum_exp) = aten::forward(&finite_inputs(inputs.clone()), settings);
    let nothing_dropped = TiledSettings {
        dropout: None,
        ..settings.clone()
    };
    let (shown, ..) = forward_in_f32(inputs, &nothing_dropped);
    let sees_none = shown.tensor.isfinite().all_dim(3, true);
    let poisoned = |tensor: TchTensor| {
        let tensor = tensor
            .tensor
            .masked_fill(&sees_none.logical_not(), f64::NAN);
        TchTensor::new(tensor)
    };
    with_log_sum_exp(poisoned(context), poisoned(log_sum_exp))
}

/// A tensor with zeros for elements that are not finite.
fn finite(tensor: &TchTensor) -> TchTensor {
    let tensor = &tensor.tensor;
    TchTensor::new(tensor.masked_fill(&tensor.isfinite().logical_not(), 0.0))
}

fn to(tensor: TchTensor, kind: tch::Kind) -> TchTensor {
    TchTensor::new(tensor.tensor.to_kind(kind))
}

/// The way back where weights were dropped: only LibTorch knows which. There is no way in for a
/// gradient by the log-sum-exp, but that knows of no dropout: what it adds to the gradients is
/// worked out apart.
fn with_dropout(
    saved: Saved<LibTorch>,
    arrived: Arrived<LibTorch>,
    settings: &TiledSettings,
) -> InputGradients<LibTorch> {
    let by_context = Arrived {
        d_context: arrived.d_context.clone(),
        d_log_sum_exp: None,
        wants_bias: false,
    };
    let saved = match is_clean(&saved.inputs, settings) {
        true => saved,
        false => Saved {
            inputs: finite_inputs(saved.inputs),
            ..saved
        },
    };
    let gradients = aten::backward(&saved, &by_context, settings)
        .expect("a call with dropout and without a bias can go back");
    if arrived.d_log_sum_exp.is_none() {
        return gradients;
    }
    let by_log_sum_exp = Arrived {
        d_context: TchTensor::new(arrived.d_context.tensor.zeros_like()),
        ..arrived
    };
    let nothing_dropped = TiledSettings {
        dropout: None,
        ..settings.clone()
    };
    let more = in_f32(saved, by_log_sum_exp, &nothing_dropped);
    let add = |a: TchTensor, b: TchTensor| TchTensor::new(a.tensor + b.tensor);
    InputGradients {
        query: add(gradients.query, more.query),
        key: add(gradients.key, more.key),
        value: add(gradients.value, more.value),
        bias: None,
    }
}

/// The tile loops for what may have gone forward in half precision. They compute in `f32`.
fn in_f32(
    saved: Saved<LibTorch>,
    arrived: Arrived<LibTorch>,
    settings: &TiledSettings,
) -> InputGradients<LibTorch> {
    let stats = &saved.stats.tensor;
    let saved = match stats.size()[3] {
        1 => Saved {
            stats: TchTensor::new(tch::Tensor::cat(
                &[stats.shallow_clone(), stats.ones_like()],
                3,
            )),
            ..saved
        },
        _ => saved,
    };
    let stored = saved.inputs.query.tensor.kind();
    if stored == tch::Kind::Float {
        return portable::backward::<LibTorch>(saved, arrived, settings);
    }
    let saved = Saved {
        inputs: in_wide(saved.inputs),
        context: to(saved.context, tch::Kind::Float),
        ..saved
    };
    let arrived = Arrived {
        d_context: to(arrived.d_context, tch::Kind::Float),
        ..arrived
    };
    let gradients = portable::backward::<LibTorch>(saved, arrived, settings);
    InputGradients {
        query: to(gradients.query, stored),
        key: to(gradients.key, stored),
        value: to(gradients.value, stored),
        bias: gradients.bias.map(|bias| to(bias, stored)),
    }
}

#[cfg(test)]
mod tests;
