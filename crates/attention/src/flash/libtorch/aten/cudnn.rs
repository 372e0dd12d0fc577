//! cuDNN's attention in half precision, for long sequences of one length: on Hopper it takes two
//! thirds of the time of [flash](super::flash).

use tch::{Device, Kind, Tensor};

use super::call::{Results, Seen};
use crate::AttentionShape;
use crate::flash::call::TiledSettings;
use crate::kept::Kept;

/// From this length on. It plans for each new shape, which takes longer than many short
/// sequences do, and texts come in all lengths.
const LONG: usize = 1024;

/// Whether it computes a call that has nothing but full or causal sequences.
pub(super) fn takes(device: Device, seen: &Seen, shape: &AttentionShape) -> bool {
    let seq = shape.seq_q;
    let is_one_length = seq == shape.seq_k && seq >= LONG && seq.is_multiple_of(64);
    let are_heads_taken = shape.group() == 1 && shape.d_head <= 128;
    seen.window.is_none() && is_one_length && are_heads_taken && works_on(device)
}

/// Whether a device has it. Found out once a device.
fn works_on(device: Device) -> bool {
    static KNOWN: Kept<Device, bool> = Kept::new();
    let attempt = |device: &Device| {
        let small = Tensor::zeros([1, 1, 128, 64], (Kind::BFloat16, *device));
        zoo_kernels::aten::cudnn_attention([&small, &small, &small], false, 1.0).is_ok()
    };
    device != Device::Cpu && *KNOWN.get(device, attempt)
}

pub(super) fn forward(
    [query, key, value]: &[Tensor; 3],
    seen: &Seen,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    zoo_kernels::aten::cudnn_attention([query, key, value], seen.is_causal, settings.scale)
        .unwrap_or_else(|error| panic!("flash attention: {error}"))
}

pub(super) fn backward(
    [query, key, value]: &[Tensor; 3],
    results: &Results<'_>,
    seen: &Seen,
    settings: &TiledSettings,
) -> [Tensor; 3] {
    let nothing = Tensor::new();
    // Nothing is dropped: what it would be drawn by is not looked at.
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
        &nothing,
        &nothing,
        &nothing,
        settings.shape.seq_q as i64,
        settings.shape.seq_k as i64,
        0.0,
        seen.is_causal,
        settings.scale,
    );
    [d_query, d_key, d_value]
}
