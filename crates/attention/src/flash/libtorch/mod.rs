//! LibTorch: on the CPU the [CPU body](super::cpu), on its tensors' own memory; on CUDA
//! [ATen's](aten) where that can do it, half precision as it is; else the portable one.
//!
//! ATen's flash attention for the CPU is not used: ours takes every pattern, and its
//! gradient is exactly zero where it should be. Neither is burn-tch's `attention`: it
//! hands on masks that mean the opposite.

mod aten;

use burn::backend::libtorch::TchTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{LibTorch, TensorMetadata};
use burn::tensor::DType;
use zoo_kernels::cpu::InstructionSet;

use super::call::{Arrived, Bias, InputGradients, MoreHidden, Saved, TiledSettings};
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

impl TiledForward for LibTorch {
    fn tiled_forward(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        hidden: MoreHidden<Self>,
        bias: Bias<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let has_more = aten::has_more(&hidden, &bias);
        match body(&query, query.dtype(), has_more, &settings) {
            Body::Aten if settings.dropout.is_some() => {
                forward_with_dropout([query, key, value], hidden, bias, &settings)
            }
            Body::Aten => {
                let tensors = [&query, &key, &value];
                let (context, log_sum_exp) = aten::forward(tensors, &hidden, &bias, &settings);
                let may_hide = may_hide(&hidden, &bias, &settings);
                if settings.assume_finite || aten::is_exact([&key, &value], &log_sum_exp, may_hide)
                {
                    with_log_sum_exp(context, log_sum_exp)
                } else {
                    forward_in_f32([query, key, value], hidden, bias, &settings)
                }
            }
            Body::Tiles => portable::forward::<Self>(query, key, value, hidden, bias, &settings),
            _ => host::forward::<Self>(query, key, value, hidden, bias, &settings),
        }
    }
}

impl TiledBackward for LibTorch {
    fn tiled_backward(
        saved: Saved<Self>,
        arrived: Arrived<Self>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        let has_more = aten::has_more(&saved.hidden, &saved.bias);
        match body(&saved.query, saved.query.dtype(), has_more, settings) {
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
fn with_log_sum_exp(
    context: TchTensor,
    log_sum_exp: TchTensor,
) -> (TchTensor, TchTensor, TchTensor) {
    // Not a view of the same memory by another name: burn-tch writes to what it takes for unshared.
    let stats = log_sum_exp.clone();
    (context, log_sum_exp, stats)
}

/// Whether a key may be hidden from a query.
fn may_hide(
    hidden: &MoreHidden<LibTorch>,
    bias: &Bias<LibTorch>,
    settings: &TiledSettings,
) -> bool {
    aten::has_more(hidden, bias) || !matches!(*settings.rule, Rule::Full)
}

/// The tile loops in `f32`, for what ATen's kernels do not compute exactly.
fn forward_in_f32(
    tensors: [TchTensor; 3],
    hidden: MoreHidden<LibTorch>,
    bias: Bias<LibTorch>,
    settings: &TiledSettings,
) -> (TchTensor, TchTensor, TchTensor) {
    let stored = tensors[0].tensor.kind();
    let [query, key, value] = tensors.map(|tensor| to(tensor, tch::Kind::Float));
    let bias = match bias {
        Bias::Nothing => Bias::Nothing,
        Bias::Added(bias) => Bias::Added(to(bias, tch::Kind::Float)),
    };
    let (context, log_sum_exp, stats) =
        portable::forward::<LibTorch>(query, key, value, hidden, bias, settings);
    (to(context, stored), log_sum_exp, stats)
}

/// ATen's kernel where weights are dropped, which only it knows how to do again: elements that
/// are not finite are kept from it, and what sees one is made NaN afterwards.
fn forward_with_dropout(
    [query, key, value]: [TchTensor; 3],
    hidden: MoreHidden<LibTorch>,
    bias: Bias<LibTorch>,
    settings: &TiledSettings,
) -> (TchTensor, TchTensor, TchTensor) {
    let is_clean = settings.assume_finite
        || !may_hide(&hidden, &bias, settings)
        || !aten::has_non_finite([&key, &value]);
    if is_clean {
        let (context, log_sum_exp) =
            aten::forward([&query, &key, &value], &hidden, &bias, settings);
        return with_log_sum_exp(context, log_sum_exp);
    }
    let (finite_key, finite_value) = (finite(&key), finite(&value));
    let tensors = [&query, &finite_key, &finite_value];
    let (context, log_sum_exp) = aten::forward(tensors, &hidden, &bias, settings);
    let nothing_dropped = TiledSettings {
        dropout: None,
        ..settings.clone()
    };
    let (shown, ..) = forward_in_f32([query, key, value], hidden, bias, &nothing_dropped);
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
    let may_hide = may_hide(&saved.hidden, &saved.bias, settings);
    let saved =
        if settings.assume_finite || !may_hide || !aten::has_non_finite([&saved.key, &saved.value])
        {
            saved
        } else {
            Saved {
                key: finite(&saved.key),
                value: finite(&saved.value),
                ..saved
            }
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
    let stored = saved.query.tensor.kind();
    if stored == tch::Kind::Float {
        return portable::backward::<LibTorch>(saved, arrived, settings);
    }
    let wide = |tensor: TchTensor| to(tensor, tch::Kind::Float);
    let saved = Saved {
        query: wide(saved.query),
        key: wide(saved.key),
        value: wide(saved.value),
        context: wide(saved.context),
        bias: match saved.bias {
            Bias::Nothing => Bias::Nothing,
            Bias::Added(bias) => Bias::Added(wide(bias)),
        },
        ..saved
    };
    let arrived = Arrived {
        d_context: wide(arrived.d_context),
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
