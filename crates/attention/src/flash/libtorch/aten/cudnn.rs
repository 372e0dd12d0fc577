//! cuDNN's attention in half precision, for long sequences with `seq_q == seq_k`: on Hopper it
//! takes two thirds of the time of [flash](super::flash).

use tch::{Device, Kind, Tensor};

use super::call::{BackwardInputs, KernelMask};
use crate::AttentionShape;
use crate::flash::call::TiledSettings;
use crate::memo::Memo;

/// The shortest sequence. cuDNN builds a plan for each new shape, which takes longer than many
/// short sequences do, and texts have many different lengths.
const MIN_SEQ: usize = 1024;

/// Whether it supports a full or causal call.
pub(super) fn is_supported(device: Device, mask: &KernelMask, shape: &AttentionShape) -> bool {
    let seq = shape.seq_q;
    let supports_seq = seq == shape.seq_k && seq >= MIN_SEQ && seq.is_multiple_of(64);
    let supports_heads = shape.group() == 1 && shape.d_head <= 128;
    mask.window.is_none() && supports_seq && supports_heads && is_available(device)
}

/// Whether a device supports it. Tried once per device.
fn is_available(device: Device) -> bool {
    static AVAILABLE: Memo<Device, bool> = Memo::new();
    let attempt = |device: &Device| {
        let small = Tensor::zeros([1, 1, 128, 64], (Kind::BFloat16, *device));
        zoo_kernels::aten::cudnn_attention([&small, &small, &small], false, 1.0).is_ok()
    };
    device != Device::Cpu && *AVAILABLE.get(device, attempt)
}

pub(super) fn forward(
    [query, key, value]: &[Tensor; 3],
    mask: &KernelMask,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    zoo_kernels::aten::cudnn_attention([query, key, value], mask.is_causal, settings.scale)
        .unwrap_or_else(|error| panic!("flash attention: {error}"))
}

pub(super) fn backward(
    [query, key, value]: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    mask: &KernelMask,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let undefined = Tensor::new();
    // Without dropout the seed is not read.
    let no_seed = Tensor::empty([1], (Kind::Int64, query.device()));
    let (d_query, d_key, d_value) = Tensor::internal_scaled_dot_product_cudnn_attention_backward(
        results.d_context,
        query,
        key,
        value,
        results.context,
        results.log_sum_exp,
        &no_seed,
        &no_seed,
        &undefined,
        &undefined,
        &undefined,
        settings.shape.seq_q as i64,
        settings.shape.seq_k as i64,
        0.0,
        mask.is_causal,
        settings.scale,
    );
    [d_query, d_key, d_value]
}
