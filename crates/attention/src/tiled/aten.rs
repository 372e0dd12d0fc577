//! LibTorch's own memory-efficient attention, for CUDA devices.
//!
//! It knows no pattern but full and causal, and aligns causal with the first key where
//! this project does with the last: it is taken where both are the same. Everything
//! else goes through the [tile loops](super::portable).

use burn::backend::libtorch::TchTensor;
use tch::{Kind, Tensor};

use super::ops::TiledSettings;
use crate::AttentionShape;
use crate::pattern::rule::Rule;

/// Whether a call on a CUDA device, without a mask or a bias, is one it can compute.
pub(super) fn can(settings: &TiledSettings) -> bool {
    let AttentionShape {
        batch,
        heads,
        seq_q,
        seq_k,
        d_head,
        d_value,
        ..
    } = settings.shape;
    let pattern = match settings.rule.as_ref() {
        Rule::Full => true,
        Rule::Causal => seq_q == seq_k,
        _ => false,
    };
    let plain =
        settings.softcap.is_none() && settings.alibi.is_none() && settings.dropout.is_none();
    // It reads four numbers at a time, and has no shared heads without a copy.
    let aligned = d_head.is_multiple_of(4) && d_value.is_multiple_of(4);
    // Its grid has no room for more.
    let fits = batch.max(heads) <= u16::MAX as usize;
    // With one key alone nothing is to be learned of queries and keys, and its gradients
    // are the rounding of that nothing.
    let several = seq_k > 1;
    pattern && plain && aligned && fits && several && settings.shape.group() == 1
}

/// A tensor as it can be read there: numbers of a row side by side, rows four apart, the
/// first where four can be read at once.
fn laid_out(tensor: &TchTensor) -> Tensor {
    let tensor = &tensor.tensor;
    match tensor.stride().split_last() {
        Some((1, others))
            if others.iter().all(|stride| stride % 4 == 0)
                && (tensor.data_ptr() as usize).is_multiple_of(16) =>
        {
            tensor.shallow_clone()
        }
        _ => tensor.contiguous(),
    }
}

/// Context and log-sum-exp.
pub(super) fn forward(
    query: &TchTensor,
    key: &TchTensor,
    value: &TchTensor,
    settings: &TiledSettings,
) -> (TchTensor, TchTensor) {
    let (context, log_sum_exp, _, _) = Tensor::internal_scaled_dot_product_efficient_attention(
        &laid_out(query),
        &laid_out(key),
        &laid_out(value),
        None::<Tensor>,
        true,
        0.0,
        is_causal(settings),
        settings.scale,
    );
    // It keeps room for more queries than there are.
    let log_sum_exp = log_sum_exp
        .narrow(2, 0, settings.shape.seq_q as i64)
        .unsqueeze(3)
        .copy();
    // As it is: its backward pass wants it laid out by place, as this is inside.
    (TchTensor::new(context), TchTensor::new(log_sum_exp))
}

/// The gradients by query, key and value.
pub(super) fn backward(
    [query, key, value]: [&TchTensor; 3],
    [context, log_sum_exp, d_context]: [&TchTensor; 3],
    settings: &TiledSettings,
) -> [TchTensor; 3] {
    let AttentionShape { seq_q, seq_k, .. } = settings.shape;
    // It wants [batch, seq, heads, d], and room in the log-sum-exp for whole groups of 32.
    let by_place = |tensor: &TchTensor| laid_out(tensor).transpose(1, 2);
    let more = seq_q.next_multiple_of(32) - seq_q;
    let log_sum_exp = log_sum_exp
        .tensor
        .squeeze_dim(3)
        .constant_pad_nd([0, more as i64]);
    // Nothing is dropped: what it would be drawn by is not looked at.
    let no_seed = Tensor::zeros([], (Kind::Int64, tch::Device::Cpu));
    let (d_query, d_key, d_value, _) = Tensor::internal_efficient_attention_backward(
        &by_place(d_context),
        &by_place(query),
        &by_place(key),
        &by_place(value),
        None::<Tensor>,
        &by_place(context),
        None::<Tensor>,
        None::<Tensor>,
        seq_q as i64,
        seq_k as i64,
        &log_sum_exp,
        0.0,
        &no_seed,
        &no_seed,
        i64::from(is_causal(settings)),
        false,
        settings.scale,
        None,
        None,
        false,
    );
    [d_query, d_key, d_value].map(|tensor| TchTensor::new(tensor.transpose(1, 2).contiguous()))
}

fn is_causal(settings: &TiledSettings) -> bool {
    *settings.rule == Rule::Causal
}
