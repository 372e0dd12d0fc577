//! ATen's flash attention in half precision, with `f32` accumulation.

use tch::{Device, Kind, Tensor};

use super::call::{BackwardInputs, KernelMask, swap_heads};
use crate::flash::call::TiledSettings;
use crate::memo::Memo;

/// Whether a device supports it (Ampere and later). Tried once per device.
pub(super) fn is_supported(device: Device) -> bool {
    static SUPPORTED: Memo<Device, bool> = Memo::new();
    let attempt = |device: &Device| {
        let small = Tensor::zeros([1, 2, 1, 8], (Kind::Half, *device));
        zoo_kernels::aten::flash_attention([&small, &small, &small], false, 1.0, None).is_ok()
    };
    device != Device::Cpu && *SUPPORTED.get(device, attempt)
}

fn window(mask: &KernelMask) -> Option<[i64; 2]> {
    Some(mask.window?.map(|side| side as i64))
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    mask: &KernelMask,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let [query, key, value] = tensors.each_ref().map(swap_heads);
    let [context, log_sum_exp] = zoo_kernels::aten::flash_attention(
        [&query, &key, &value],
        mask.is_causal,
        settings.scale,
        window(mask),
    )
    .unwrap_or_else(|error| panic!("flash attention: {error}"));
    [swap_heads(&context), log_sum_exp.unsqueeze(3)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    mask: &KernelMask,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let [query, key, value] = tensors.each_ref().map(swap_heads);
    let undefined = Tensor::new();
    let window = window(mask);
    // Without dropout the seed is not read.
    let no_seed = Tensor::empty([2], (Kind::Int64, query.device()));
    let (d_query, d_key, d_value) = Tensor::internal_flash_attention_backward(
        &swap_heads(results.d_context),
        &query,
        &key,
        &value,
        &swap_heads(results.context),
        &results.log_sum_exp.squeeze_dim(3),
        &undefined,
        &undefined,
        settings.shape.seq_q as i64,
        settings.shape.seq_k as i64,
        0.0,
        mask.is_causal,
        &no_seed,
        &no_seed,
        settings.scale,
        window.map(|[left, _]| left),
        window.map(|[_, right]| right),
    );
    [d_query, d_key, d_value].map(|grad| swap_heads(&grad))
}
