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
    let tensors = [&query, &key, &value];
    let [context, log_sum_exp] =
        kernel_forward(tensors, mask.is_causal, settings.scale, window(mask));
    [swap_heads(&context), log_sum_exp.unsqueeze(3)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    mask: &KernelMask,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let [query, key, value] = tensors.each_ref().map(swap_heads);
    let grads = kernel_backward(
        [&query, &key, &value],
        [
            &swap_heads(results.context),
            &results.log_sum_exp.squeeze_dim(3),
            &swap_heads(results.d_context),
        ],
        mask.is_causal,
        settings.scale,
        window(mask),
    );
    grads.map(|grad| swap_heads(&grad))
}

/// Context `[batch, seq_q, heads, d]` and log-sum-exp `[batch, heads, seq_q]` of tensors
/// `[batch, seq, heads, d]`; consecutive query heads may share a key head.
pub(super) fn kernel_forward(
    tensors: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
    window: Option<[i64; 2]>,
) -> [Tensor; 2] {
    #[cfg(test)]
    if tensors[0].device() == Device::Cpu {
        return super::reference::flash_forward(tensors, is_causal, scale);
    }
    zoo_kernels::aten::flash_attention(tensors, is_causal, scale, window)
        .unwrap_or_else(|error| panic!("flash attention: {error}"))
}

/// The gradients of query, key and value, from context, log-sum-exp and output gradient.
pub(super) fn kernel_backward(
    [query, key, value]: [&Tensor; 3],
    [context, log_sum_exp, d_context]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
    window: Option<[i64; 2]>,
) -> [Tensor; 3] {
    #[cfg(test)]
    if query.device() == Device::Cpu {
        let tensors = [query, key, value];
        let results = [context, log_sum_exp, d_context];
        return super::reference::flash_backward(tensors, results, is_causal, scale);
    }
    let undefined = Tensor::new();
    // Without dropout the seed is not read.
    let no_seed = Tensor::empty([2], (Kind::Int64, query.device()));
    let (d_query, d_key, d_value) = Tensor::internal_flash_attention_backward(
        d_context,
        query,
        key,
        value,
        context,
        log_sum_exp,
        &undefined,
        &undefined,
        query.size()[1],
        key.size()[1],
        0.0,
        is_causal,
        &no_seed,
        &no_seed,
        scale,
        window.map(|[left, _]| left),
        window.map(|[_, right]| right),
    );
    [d_query, d_key, d_value]
}
