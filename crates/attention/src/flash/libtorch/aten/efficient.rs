//! Memory-efficient attention: any precision, with a bias, lengths and dropout.

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{Added, Results, Seen, has_more, laid_out, numbers_at_once};
use crate::flash::call::{Inputs, MoreHidden, TiledSettings};
use crate::kept::Kept;
use crate::{AttentionShape, Dropout};

/// Added to the scores of what is hidden. Minus infinity would do as well, but for queries that
/// see nothing: the kernel gives them a log-sum-exp like any other. It is finite also when the
/// kernel multiplies it by log2(e).
pub(super) const LOWEST: f64 = -2e38;
/// The least bias of a key that is not hidden.
const LEAST_VISIBLE: f64 = -1e38;
/// Below this, a log-sum-exp is that of a query which sees nothing.
pub(super) const BLIND: f64 = -1.5e38;

impl Added {
    pub(super) fn new(
        inputs: &Inputs<LibTorch>,
        seen: &Seen,
        query: &Tensor,
        settings: &TiledSettings,
    ) -> Self {
        let shape = &settings.shape;
        // A bias may hide by minus infinity.
        let mut added = inputs.bias.as_ref().map(|bias| {
            let hides = bias.tensor.eq(f64::NEG_INFINITY);
            let bias = bias.tensor.clamp_min(LEAST_VISIBLE);
            bias.masked_fill(&hides, LOWEST)
        });
        if let MoreHidden::Where(hidden) = &inputs.hidden {
            let hidden = &hidden.tensor;
            let base = match added {
                Some(bias) => bias,
                None => Tensor::zeros([1, 1, 1, 1], (query.kind(), query.device())),
            };
            added = Some(base.masked_fill(hidden, LOWEST));
        }
        if let Some(lengths) = &seen.lengths {
            let row = by_lengths(lengths, query, shape.seq_k);
            added = Some(match added {
                // Two of the lowest would be minus infinity.
                Some(bias) => (bias + &row.tensor).clamp_min(LOWEST),
                None => row.tensor.shallow_clone(),
            });
        }
        let mask = match (seen.is_causal, shape.seq_q == shape.seq_k) {
            (false, _) => Mask::Nothing,
            (true, true) => Mask::CausalFromFirst,
            (true, false) => Mask::CausalToLast,
        };
        Self {
            mask,
            bias: added.map(|bias| spread(&grouped_bias(bias, shape), Dims::of(shape))),
            may_blind: has_more(inputs),
        }
    }
}

/// Sizes as the kernel has them. Heads that share keys and values are its heads, so that a
/// key stands for all of them without a copy; those that do not are examples of its.
pub(super) struct Dims {
    pub(super) batch: i64,
    pub(super) heads: i64,
    pub(super) seq_q: i64,
    pub(super) seq_k: i64,
}

impl Dims {
    fn of(shape: &AttentionShape) -> Self {
        let [batch, heads] = match shape.group() {
            1 => [shape.batch, shape.heads],
            group => [shape.batch * shape.kv_heads, group],
        };
        Self {
            batch: batch as i64,
            heads: heads as i64,
            seq_q: shape.seq_q as i64,
            seq_k: shape.seq_k as i64,
        }
    }
}

/// The lowest for the keys that an example does not have, `[batch, 1, 1, seq_k]`. Kept, as
/// every layer of a model asks for the same.
fn by_lengths(lengths: &[usize], query: &Tensor, seq_k: usize) -> std::sync::Arc<TchTensor> {
    type Key = (Vec<usize>, usize, Kind, tch::Device);
    static KEPT: Kept<Key, TchTensor> = Kept::new();
    let key = (lengths.to_vec(), seq_k, query.kind(), query.device());
    KEPT.get(key, |(lengths, seq_k, kind, device)| {
        let numbers: Vec<f32> = lengths
            .iter()
            .flat_map(|length| {
                (0..*seq_k).map(move |key| if key < *length { 0.0 } else { LOWEST as f32 })
            })
            .collect();
        let rows =
            Tensor::from_slice(&numbers).reshape([lengths.len() as i64, 1, 1, *seq_k as i64]);
        // The host does not wait for it.
        TchTensor::new(rows.to_device_(*device, *kind, true, false))
    })
}

/// A bias of `[batch, heads, ..]`, any of them 1 to stand for all, for the kernel's.
fn grouped_bias(bias: Tensor, shape: &AttentionShape) -> Tensor {
    let group = shape.group() as i64;
    if group == 1 {
        return bias;
    }
    let size = bias.size();
    let [batch, heads, kv_heads] =
        [shape.batch, shape.heads, shape.kv_heads].map(|size| size as i64);
    if size[0] == 1 && size[1] == 1 {
        return bias;
    }
    bias.expand([batch, heads, size[2], size[3]], false)
        .reshape([batch * kv_heads, group, size[2], size[3]])
}

/// A bias for all places, with rows that start where the kernel can read them; copied only
/// if they do not.
pub(super) fn spread(bias: &Tensor, dims: Dims) -> Tensor {
    let step = numbers_at_once(bias.kind());
    let (size, stride) = (bias.size(), bias.stride());
    let is_readable = size[3] == dims.seq_k
        && stride[3] == 1
        && (0..3).all(|dim| size[dim] == 1 || stride[dim] % step as i64 == 0)
        && (bias.data_ptr() as usize).is_multiple_of(16);
    let bias = if is_readable {
        // Strides of what stands for all are not looked at, unless they are.
        bias.shallow_clone()
    } else {
        let across = (dims.seq_k as usize).next_multiple_of(step) as i64;
        // What is beyond the last key is read, too, and multiplied by zeros.
        let room = Tensor::zeros(
            [size[0], size[1], size[2], across],
            (bias.kind(), bias.device()),
        );
        let mut room = room.narrow(3, 0, dims.seq_k);
        room.copy_(bias);
        room
    };
    bias.expand([dims.batch, dims.heads, dims.seq_q, dims.seq_k], false)
}

/// Query, key and value as the kernel's `[batch, seq, heads, d]`.
fn turned(tensors: &[Tensor; 3], shape: &AttentionShape) -> [Tensor; 3] {
    let [query, key, value] = tensors;
    if shape.group() == 1 {
        return tensors.each_ref().map(|tensor| tensor.transpose(1, 2));
    }
    let shared = |tensor: &Tensor, width: usize| {
        let dims = Dims::of(shape);
        tensor
            .reshape([dims.batch, 1, dims.seq_k, width as i64])
            .expand([dims.batch, dims.heads, dims.seq_k, width as i64], false)
            .transpose(1, 2)
    };
    [
        by_group(query, shape),
        shared(key, shape.d_head),
        shared(value, shape.d_value),
    ]
}

/// A tensor with a row for each query, as the kernel's `[batch, seq, heads, d]`.
fn by_group(tensor: &Tensor, shape: &AttentionShape) -> Tensor {
    let dims = Dims::of(shape);
    tensor
        .reshape([dims.batch, dims.heads, dims.seq_q, -1])
        .transpose(1, 2)
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    added: &Added,
    settings: &TiledSettings,
) -> [Tensor; 2] {
    let shape = &settings.shape;
    let [query, key, value] = turned(tensors, shape);
    let [context, log_sum_exp] = kernel_forward(
        [&query, &key, &value],
        added,
        settings.scale,
        settings.dropout,
    );
    let [batch, heads, seq_q, _] = shape.scores().map(|size| size as i64);
    // It keeps room for more queries than there are.
    let log_sum_exp = log_sum_exp
        .narrow(2, 0, seq_q)
        .reshape([batch, heads, seq_q, 1]);
    // As it lies: the backward pass wants it by place, as this is inside.
    let context = context.transpose(1, 2);
    let context = match shape.group() {
        1 => context,
        _ => context.reshape([batch, heads, seq_q, shape.d_value as i64]),
    };
    if !added.may_blind {
        return [context, log_sum_exp];
    }
    let blind = log_sum_exp.le(BLIND);
    [
        context.masked_fill(&blind, 0.0),
        log_sum_exp.masked_fill(&blind, LOWEST),
    ]
}

/// The gradients by query, key and value, and by the bias if that is wanted.
pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &Results<'_>,
    added: &Added,
    settings: &TiledSettings,
    wants_bias: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    let shape = &settings.shape;
    let dims = Dims::of(shape);
    let [query, key, value] = turned(tensors, shape);
    let arrived = if added.may_blind {
        // What saw nothing passes nothing on.
        let blind = results.log_sum_exp.le(BLIND);
        results.d_context.masked_fill(&blind, 0.0)
    } else {
        results.d_context.shallow_clone()
    };
    let by_place = |tensor: &Tensor| by_group(&laid_out(tensor), shape);
    let log_sum_exp = results
        .log_sum_exp
        .reshape([dims.batch, dims.heads, dims.seq_q]);
    let log_sum_exp = in_groups_of_32(&log_sum_exp);
    let ([d_query, d_key, d_value], d_bias) = kernel_backward(
        [&query, &key, &value],
        [
            &by_place(results.context),
            &log_sum_exp,
            &by_place(&arrived),
        ],
        added,
        settings.scale,
        settings.dropout,
        wants_bias,
    );
    let d_bias = d_bias.map(|d_bias| d_bias.reshape(shape.scores().map(|size| size as i64)));
    let [d_query, d_key, d_value] =
        [d_query, d_key, d_value].map(|gradient| gradient.transpose(1, 2));
    if shape.group() == 1 {
        return ([d_query, d_key, d_value], d_bias);
    }
    let size = |tensor: &Tensor| tensor.size();
    let d_key = d_key.sum_dim_intlist(1, false, None::<Kind>);
    let d_value = d_value.sum_dim_intlist(1, false, None::<Kind>);
    let gradients = [
        d_query.reshape(size(&tensors[0])),
        d_key.reshape(size(&tensors[1])),
        d_value.reshape(size(&tensors[2])),
    ];
    (gradients, d_bias)
}

/// `[batch, heads, seq_q]` with room for whole groups of 32 queries, as the backward pass wants
/// log-sum-exps.
pub(super) fn in_groups_of_32(tensor: &Tensor) -> Tensor {
    let more = (32 - tensor.size()[2] % 32) % 32;
    match more {
        0 => tensor.contiguous(),
        _ => tensor.constant_pad_nd([0, more]),
    }
}

/// Context `[batch, seq_q, heads, d]` and log-sum-exp `[batch, heads, seq_q or more]`.
pub(super) fn kernel_forward(
    tensors: [&Tensor; 3],
    added: &Added,
    scale: f64,
    dropout: Option<Dropout>,
) -> [Tensor; 2] {
    #[cfg(test)]
    if tensors[0].device() == tch::Device::Cpu {
        return super::stand_in::forward(tensors, added, scale);
    }
    let told = zoo_kernels::aten::Efficient {
        mask: added.mask,
        bias: added.bias.as_ref(),
        scale,
        dropout: dropout.map(told_dropout),
    };
    zoo_kernels::aten::efficient_attention(tensors, &told)
        .unwrap_or_else(|error| panic!("flash attention: {error}"))
}

fn told_dropout(dropout: Dropout) -> zoo_kernels::aten::Dropout {
    zoo_kernels::aten::Dropout {
        probability: dropout.probability,
        // Any bits are a seed; the highest is left out so that it stays positive.
        seed: (dropout.seed & i64::MAX as u64) as i64,
    }
}

/// The gradients of what `[batch, seq, heads, d]` tensors gave, and by the bias.
pub(super) fn kernel_backward(
    [query, key, value]: [&Tensor; 3],
    [context, log_sum_exp, d_context]: [&Tensor; 3],
    added: &Added,
    scale: f64,
    dropout: Option<Dropout>,
    wants_bias: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    #[cfg(test)]
    if query.device() == tch::Device::Cpu {
        let tensors = [query, key, value];
        let results = [context, log_sum_exp, d_context];
        return super::stand_in::backward(tensors, results, added, scale, wants_bias);
    }
    let (probability, seed) = match dropout.map(told_dropout) {
        Some(dropout) => (dropout.probability, dropout.seed),
        None => (0.0, 0),
    };
    let (d_query, d_key, d_value, d_bias) = Tensor::internal_efficient_attention_backward(
        d_context,
        query,
        key,
        value,
        added.bias.as_ref(),
        context,
        None::<&Tensor>,
        None::<&Tensor>,
        query.size()[1],
        key.size()[1],
        log_sum_exp,
        probability,
        &Tensor::from(seed),
        &Tensor::from(0i64),
        added.mask as i64,
        wants_bias,
        scale,
        None,
        None,
        false,
    );
    ([d_query, d_key, d_value], wants_bias.then_some(d_bias))
}
