//! LibTorch: on the CPU the [CPU body](super::cpu), on its tensors' own memory; on CUDA
//! [ATen's](super::aten) where that can do it, half precision as it is; else the portable one.
//!
//! ATen's flash attention for the CPU is not used: ours takes every pattern, and its
//! gradient is exactly zero where it should be. Neither is burn-tch's `attention`: it
//! hands on masks that mean the opposite.

use std::borrow::Cow;

use burn::backend::libtorch::TchTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{LibTorch, TensorMetadata};
use burn::tensor::DType;

use super::cpu::Kind;
use super::host::{self, Host};
use super::ops::{
    Arrived, Bias, InputGradients, MoreHidden, Saved, TiledBackward, TiledForward, TiledSettings,
};
use super::{Body, aten, portable};

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
        tch::Device::Cpu => Kind::here().body(),
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
            Body::Aten => {
                let tensors = [&query, &key, &value];
                let (context, log_sum_exp) = aten::forward(tensors, &hidden, &bias, &settings);
                // LibTorch's backward kernels take the log-sum-exp as it is.
                let stats = TchTensor::new(log_sum_exp.tensor.shallow_clone());
                (context, log_sum_exp, stats)
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
            Body::Aten => match aten::backward(&saved, &arrived, settings) {
                Some(gradients) => gradients,
                None => in_f32(saved, arrived, settings),
            },
            Body::Tiles => portable::backward::<Self>(saved, arrived, settings),
            _ => host::backward::<Self>(saved, arrived, settings),
        }
    }
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
    let log_sum_exp = &saved.stats.tensor;
    let saved = Saved {
        stats: TchTensor::new(tch::Tensor::cat(
            &[log_sum_exp.shallow_clone(), log_sum_exp.ones_like()],
            3,
        )),
        ..saved
    };
    let stored = saved.query.tensor.kind();
    if stored == tch::Kind::Float {
        return portable::backward::<LibTorch>(saved, arrived, settings);
    }
    let to = |tensor: TchTensor, kind: tch::Kind| TchTensor::new(tensor.tensor.to_kind(kind));
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

/// What a tensor of this op cannot be.
fn refused<T>(error: zoo_aten::Error) -> T {
    panic!("flash attention: {error}")
}

impl Host for LibTorch {
    fn numbers(tensor: &TchTensor) -> Cow<'_, [f32]> {
        // SAFETY: nothing writes to a tensor that is an input of ours.
        unsafe { zoo_aten::host_slice(&tensor.tensor) }.unwrap_or_else(refused)
    }

    fn strided(tensor: &TchTensor) -> Option<(&[f32], [usize; 4])> {
        // SAFETY: as for `numbers`.
        unsafe { zoo_aten::host_strided(&tensor.tensor) }.unwrap_or_else(refused)
    }

    fn bytes(tensor: &TchTensor) -> Cow<'_, [u8]> {
        let device = tensor.tensor.device();
        assert!(
            device == tch::Device::Cpu,
            "flash attention: a mask must be on the device of query, Cpu, got {device:?}"
        );
        let mut bytes = vec![0u8; tensor.tensor.numel()];
        tensor
            .tensor
            .to_kind(tch::Kind::Uint8)
            .contiguous()
            .copy_data(&mut bytes, tensor.tensor.numel());
        Cow::Owned(bytes)
    }

    fn tensor(numbers: Vec<f32>, dims: [usize; 4]) -> TchTensor {
        // burn-tch's own way would fill the tensor with zeros first, on LibTorch's threads,
        // which then wait for more by spinning where ours have work; and copy.
        let tensor = zoo_aten::of_numbers(numbers, &dims);
        TchTensor::new(tensor.unwrap_or_else(refused))
    }
}

#[cfg(test)]
mod tests;
