//! Flash attention in half precision: products on tensor cores, sums in `f32`.

use tch::{Device, Kind, Tensor};

use super::call::{Results, Seen};
use crate::flash::call::TiledSettings;
use crate::kept::Kept;

/// Whether a device has it: Ampere and later do. Found out once a device.
pub(super) fn works_on(device: Device) -> bool {
    static KNOWN: Kept<Device, bool> = Kept::new();
    let attempt = |device: &Device| {
        let small = Tensor::zeros([1, 2, 1, 8], (Kind::Half, *device));
        zoo_kernels::aten::flash_attention([&small, &small, &small], false, 1.0, None).is_ok()
    };
    device != Device::Cpu && *KNOWN.get(device, attempt)
}

/// `[batch, heads, seq, d]` and `[batch, seq, heads, d]` to each other.
fn turned(tensor: &Tensor) -> Tensor {
    tensor.transpose(1, 2)
}

fn sides(seen: &Seen) -> Option<[i64; 2]> {
    let window = seen.window?;
    Some(window.map(|side| side as i64))
}

pub(super) fn forward(tensors: &[Tensor; 3], seen: &Seen, settings: &TiledSettings) -> [Tensor; 2] {
    let [query, key, value] = tensors.each_ref().map(turned);
    let [context, log_sum_exp] = zoo_kernels::aten::flash_attention(
        [&query, &key, &value],
        seen.is_causal,
        settings.scale,
        sides(seen),
    )
    .unwrap_or_else(|error| panic!("flash attention: {error}"));
    [turned(&context), log_sum_exp.unsqueeze(3)]
}

pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &Results<'_>,
    seen: &Seen,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let [query, key, value] = tensors.each_ref().map(turned);
    let nothing = Tensor::new();
    let window = sides(seen);
    // Nothing is dropped: what it would be drawn by is not looked at.
    let no_seed = Tensor::empty([2], (Kind::Int64, query.device()));
    let (d_query, d_key, d_value) = Tensor::internal_flash_attention_backward(
        &turned(results.d_context),
        &query,
        &key,
        &value,
        &turned(results.context),
        &results.log_sum_exp.squeeze_dim(3),
        &nothing,
        &nothing,
        settings.shape.seq_q as i64,
        settings.shape.seq_k as i64,
        0.0,
        seen.is_causal,
        &no_seed,
        &no_seed,
        settings.scale,
        window.map(|[left, _]| left),
        window.map(|[_, right]| right),
    );
    [d_query, d_key, d_value].map(|gradient| turned(&gradient))
}
