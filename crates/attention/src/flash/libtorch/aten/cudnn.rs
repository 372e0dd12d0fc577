//! cuDNN's attention in half precision, for long sequences of one length: on Hopper it takes two
//! thirds of the time of [flash](super::flash).

use tch::{Device, Kind, Tensor};

use super::call::{Results, Seen};
use super::known;
use crate::AttentionShape;
use crate::flash::call::TiledSettings;

/// From this length on. It plans for each new shape, which takes longer than many short
/// sequences do, and texts come in all lengths.
const LONG: usize = 1024;

/// Whether it computes a call that has nothing but full or causal sequences.
pub(super) fn takes(device: Device, seen: &Seen, shape: &AttentionShape) -> bool {
    let &AttentionShape {
        heads,
        kv_heads,
        seq_q,
        seq_k,
        d_head,
        ..
    } = shape;
    let is_one_length = seq_q == seq_k && seq_q >= LONG && seq_q.is_multiple_of(64);
    seen.window.is_none() && is_one_length && heads == kv_heads && d_head <= 128 && works_on(device)
}

/// Whether a device has it. Found out once a device.
fn works_on(device: Device) -> bool {
    static KNOWN: known::Devices = known::Devices::new();
    KNOWN.works(device, || {
        let small = Tensor::zeros([1, 1, 128, 64], (Kind::BFloat16, device));
        zoo_kernels::aten::cudnn_attention([&small, &small, &small], false, 1.0).is_ok()
    })
}

/// Context and log-sum-exp.
pub(super) fn forward(
    [query, key, value]: &[Tensor; 3],
    seen: &Seen,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let (context, log_sum_exp) =
        zoo_kernels::aten::cudnn_attention([query, key, value], seen.is_causal, settings.scale)
            .unwrap_or_else(|error| panic!("flash attention: {error}"));
    [context, log_sum_exp]
}

/// The gradients by query, key and value.
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
