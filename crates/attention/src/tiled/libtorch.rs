//! LibTorch: ATen's own flash attention where it computes what is asked; on the
//! CPU otherwise the [CPU body](super::cpu), on its tensors' own memory; elsewhere
//! the portable one.
//!
//! burn-tch's `attention` is not used: it hands on masks that mean the opposite.

use std::borrow::Cow;

use burn::backend::libtorch::TchTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{LibTorch, TensorData};

use super::host::{self, Host};
use super::ops::{InputGradients, MoreHidden, Saved, TiledBackward, TiledForward, TiledSettings};
use super::portable;
use super::sight::Rule;

/// Which body computes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// ATen's flash attention for the CPU.
    Aten { causal: bool },
    /// Ours, on the same memory.
    Host,
    /// Tile loops over LibTorch's operations.
    Portable,
}

impl Body {
    pub(super) fn of(query: &TchTensor, has_mask: bool, settings: &TiledSettings) -> Self {
        if query.tensor.device() != tch::Device::Cpu {
            return Self::Portable;
        }
        let shape = &settings.shape;
        // It knows no values of another width, and no shared heads without copies.
        let plain = !has_mask && shape.d_head == shape.d_value && shape.group() == 1;
        match &*settings.rule {
            Rule::Full if plain => Self::Aten { causal: false },
            // Its causal aligns the first query with the first key.
            Rule::Causal if plain && shape.seq_q == shape.seq_k => Self::Aten { causal: true },
            _ => Self::Host,
        }
    }
}

/// No mask, in a type.
const NO_MASK: Option<&tch::Tensor> = None;
const NO_DROPOUT: f64 = 0.0;

impl TiledForward for LibTorch {
    fn tiled_forward(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        hidden: MoreHidden<Self>,
        settings: TiledSettings,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        match Body::of(&query, hidden.is_there(), &settings) {
            Body::Aten { causal } => {
                let (context, log_sum_exp) =
                    tch::Tensor::internal_scaled_dot_product_flash_attention_for_cpu(
                        &query.tensor,
                        &key.tensor,
                        &value.tensor,
                        NO_DROPOUT,
                        causal,
                        NO_MASK,
                        settings.scale,
                    );
                let log_sum_exp = log_sum_exp.unsqueeze(-1);
                (TchTensor::new(context), TchTensor::new(log_sum_exp))
            }
            Body::Host => host::forward::<Self>(query, key, value, hidden, &settings),
            Body::Portable => portable::forward::<Self>(query, key, value, hidden, &settings),
        }
    }
}

impl TiledBackward for LibTorch {
    fn tiled_backward(
        saved: Saved<Self>,
        d_context: FloatTensor<Self>,
        d_log_sum_exp: Option<FloatTensor<Self>>,
        settings: &TiledSettings,
    ) -> InputGradients<Self> {
        let body = Body::of(&saved.query, saved.hidden.is_there(), settings);
        match (body, &d_log_sum_exp) {
            (Body::Aten { causal }, None) => {
                let log_sum_exp = saved.log_sum_exp.tensor.squeeze_dim(-1);
                let (query, key, value) =
                    tch::Tensor::internal_scaled_dot_product_flash_attention_for_cpu_backward(
                        &d_context.tensor,
                        &saved.query.tensor,
                        &saved.key.tensor,
                        &saved.value.tensor,
                        &saved.context.tensor,
                        &log_sum_exp,
                        NO_DROPOUT,
                        causal,
                        NO_MASK,
                        settings.scale,
                    );
                InputGradients {
                    query: TchTensor::new(query),
                    key: TchTensor::new(key),
                    value: TchTensor::new(value),
                }
            }
            // ATen takes no gradient by the log-sum-exp.
            (Body::Aten { .. } | Body::Host, _) => {
                host::backward::<Self>(saved, d_context, d_log_sum_exp, settings)
            }
            (Body::Portable, _) => {
                portable::backward::<Self>(saved, d_context, d_log_sum_exp, settings)
            }
        }
    }
}

impl Host for LibTorch {
    fn numbers(tensor: &TchTensor) -> Cow<'_, [f32]> {
        let tensor = &tensor.tensor;
        if tensor.is_contiguous() && tensor.kind() == tch::Kind::Float {
            // SAFETY: contiguous numbers of this type in the host's memory, as many as
            // the tensor has, kept by it for as long as it is borrowed. Nothing writes
            // to a tensor that is an input of ours.
            let numbers =
                unsafe { std::slice::from_raw_parts(tensor.data_ptr().cast(), tensor.numel()) };
            return Cow::Borrowed(numbers);
        }
        let mut numbers = vec![0.0; tensor.numel()];
        tensor
            .contiguous()
            .to_kind(tch::Kind::Float)
            .copy_data(&mut numbers, tensor.numel());
        Cow::Owned(numbers)
    }

    fn bytes(tensor: &TchTensor) -> Cow<'_, [u8]> {
        let mut bytes = vec![0u8; tensor.tensor.numel()];
        tensor
            .tensor
            .to_kind(tch::Kind::Uint8)
            .contiguous()
            .copy_data(&mut bytes, tensor.tensor.numel());
        Cow::Owned(bytes)
    }

    fn tensor(numbers: Vec<f32>, dims: [usize; 4]) -> TchTensor {
        TchTensor::from_data::<f32>(TensorData::new(numbers, dims), tch::Device::Cpu)
    }
}
