//! ATen's memory-efficient attention: any precision, with a bias, key lengths and dropout.

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{
    BackwardInputs, EfficientArgs, KernelMask, aligned, alignment, has_mask_or_bias,
    kernel_dropout, swap_heads,
};
use crate::AttentionShape;
use crate::flash::call::{Inputs, TiledSettings};
use crate::memo::Memo;

/// The bias of masked keys. With minus infinity, fully masked rows could not be recognised by their
/// log-sum-exp. It stays finite when the kernel multiplies it by log2(e).
pub(super) const MASKED_BIAS: f64 = -2e38;
/// The lower bound for the bias of a visible key.
const MIN_VISIBLE_BIAS: f64 = -1e38;
/// The log-sum-exp of a fully masked row is at most this.
pub(super) const FULLY_MASKED: f64 = -1.5e38;

impl EfficientArgs {
    pub(super) fn new(
        inputs: &Inputs<LibTorch>,
        kernel_mask: &KernelMask,
        query: &Tensor,
        settings: &TiledSettings,
    ) -> Self {
        let shape = &settings.shape;
        // A bias of minus infinity masks a key.
        let mut bias = inputs.bias.as_ref().map(|bias| {
            let masked = bias.tensor.eq(f64::NEG_INFINITY);
            let bias = bias.tensor.clamp_min(MIN_VISIBLE_BIAS);
            bias.masked_fill(&masked, MASKED_BIAS)
        });
        if let Some(mask) = inputs.mask.as_ref() {
            let base =
                bias.unwrap_or_else(|| Tensor::zeros([1, 1, 1, 1], (query.kind(), query.device())));
            bias = Some(base.masked_fill(&mask.tensor, MASKED_BIAS));
        }
        if let Some(lengths) = &kernel_mask.key_lengths {
            let row = key_length_bias(lengths, query, shape.seq_k);
            bias = Some(match bias {
                // The sum of two masked biases would be minus infinity.
                Some(bias) => (bias + &row.tensor).clamp_min(MASKED_BIAS),
                None => row.tensor.shallow_clone(),
            });
        }
        let mask = match (kernel_mask.is_causal, shape.seq_q == shape.seq_k) {
            (false, _) => Mask::None,
            (true, true) => Mask::CausalFromTopLeft,
            (true, false) => Mask::CausalFromBottomRight,
        };
        Self {
            mask,
            bias: bias.map(|bias| broadcast_bias(&group_bias(bias, shape), kernel_dims(shape))),
            may_mask_rows: has_mask_or_bias(inputs),
            scale: settings.scale,
            dropout: kernel_dropout(settings, 0),
        }
    }
}

/// The kernel's `[batch, heads, seq_q, seq_k]`. With grouped-query attention, the query heads of a
/// group are its heads, so that keys are broadcast to them without a copy, and key and value heads
/// are part of its batch.
fn kernel_dims(shape: &AttentionShape) -> [i64; 4] {
    let [batch, heads] = match shape.group() {
        1 => [shape.batch, shape.heads],
        group => [shape.batch * shape.kv_heads, group],
    };
    [batch, heads, shape.seq_q, shape.seq_k].map(|size| size as i64)
}

/// A bias of [`MASKED_BIAS`] for the keys beyond each example's length, `[batch, 1, 1, seq_k]`.
/// Cached, because every layer of a model uses the same.
fn key_length_bias(lengths: &[usize], query: &Tensor, seq_k: usize) -> std::sync::Arc<TchTensor> {
    type Key = (Vec<usize>, usize, Kind, tch::Device);
    static CACHE: Memo<Key, TchTensor> = Memo::new();
    let key = (lengths.to_vec(), seq_k, query.kind(), query.device());
    CACHE.get(key, |(lengths, seq_k, kind, device)| {
        let masked = MASKED_BIAS as f32;
        let bias = |key: usize, length: usize| if key < length { 0.0 } else { masked };
        let values: Vec<f32> = lengths
            .iter()
            .flat_map(|length| (0..*seq_k).map(move |key| bias(key, *length)))
            .collect();
        let rows = Tensor::from_slice(&values).reshape([lengths.len() as i64, 1, 1, *seq_k as i64]);
        // A non-blocking copy.
        TchTensor::new(rows.to_device_(*device, *kind, true, false))
    })
}

/// Reshapes a bias that broadcasts to `[batch, heads, ..]` to the kernel's batch and heads.
fn group_bias(bias: Tensor, shape: &AttentionShape) -> Tensor {
    let group = shape.group() as i64;
    let size = bias.size();
    if group == 1 || size[0] == 1 && size[1] == 1 {
        return bias;
    }
    let [batch, heads, kv_heads] =
        [shape.batch, shape.heads, shape.kv_heads].map(|size| size as i64);
    bias.expand([batch, heads, size[2], size[3]], false)
        .reshape([batch * kv_heads, group, size[2], size[3]])
}

/// Expands a bias to all scores, with aligned rows; copied only if they are not aligned.
pub(super) fn broadcast_bias(bias: &Tensor, dims: [i64; 4]) -> Tensor {
    let [.., seq_k] = dims;
    let step = alignment(bias.kind());
    let (size, stride) = (bias.size(), bias.stride());
    let is_aligned = size[3] == seq_k
        && stride[3] == 1
        && (0..3).all(|dim| size[dim] == 1 || stride[dim] % step as i64 == 0)
        && (bias.data_ptr() as usize).is_multiple_of(16);
    let bias = if is_aligned {
        bias.shallow_clone()
    } else {
        let columns = (seq_k as usize).next_multiple_of(step) as i64;
        // The kernel also reads the padding and multiplies it by zeros.
        let padded = Tensor::zeros(
            [size[0], size[1], size[2], columns],
            (bias.kind(), bias.device()),
        );
        let mut copy = padded.narrow(3, 0, seq_k);
        copy.copy_(bias);
        copy
    };
    bias.expand(dims, false)
}

/// Query, key and value as the kernel's `[batch, seq, heads, d]`.
fn to_kernel_layout(tensors: &[Tensor; 3], shape: &AttentionShape) -> [Tensor; 3] {
    let [query, key, value] = tensors;
    if shape.group() == 1 {
        return tensors.each_ref().map(swap_heads);
    }
    let expand = |tensor: &Tensor, width: usize| {
        let [batch, heads, _, seq_k] = kernel_dims(shape);
        tensor
            .reshape([batch, 1, seq_k, width as i64])
            .expand([batch, heads, seq_k, width as i64], false)
            .transpose(1, 2)
    };
    [
        queries_to_kernel_layout(query, shape),
        expand(key, shape.d_head),
        expand(value, shape.d_value),
    ]
}

/// A tensor with a row for each query, as the kernel's `[batch, seq, heads, d]`.
fn queries_to_kernel_layout(tensor: &Tensor, shape: &AttentionShape) -> Tensor {
    let [batch, heads, seq_q, _] = kernel_dims(shape);
    tensor.reshape([batch, heads, seq_q, -1]).transpose(1, 2)
}

pub(super) fn forward(
    tensors: &[Tensor; 3],
    args: &EfficientArgs,
    shape: &AttentionShape,
) -> [Tensor; 2] {
    let [query, key, value] = to_kernel_layout(tensors, shape);
    let [context, log_sum_exp] = kernel_forward([&query, &key, &value], args);
    let [batch, heads, seq_q, _] = shape.scores().map(|size| size as i64);
    // The kernel pads the log-sum-exp.
    let log_sum_exp = log_sum_exp
        .narrow(2, 0, seq_q)
        .reshape([batch, heads, seq_q, 1]);
    // A view: the backward pass needs the kernel's layout again.
    let context = context.transpose(1, 2);
    let context = match shape.group() {
        1 => context,
        _ => context.reshape([batch, heads, seq_q, shape.d_value as i64]),
    };
    if !args.may_mask_rows {
        return [context, log_sum_exp];
    }
    let fully_masked = log_sum_exp.le(FULLY_MASKED);
    [
        context.masked_fill(&fully_masked, 0.0),
        log_sum_exp.masked_fill(&fully_masked, MASKED_BIAS),
    ]
}

/// The gradients of query, key and value, and of the bias if needed.
pub(super) fn backward(
    tensors: &[Tensor; 3],
    results: &BackwardInputs<'_>,
    args: &EfficientArgs,
    shape: &AttentionShape,
    needs_bias_grad: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    let [batch, heads, seq_q, _] = kernel_dims(shape);
    let [query, key, value] = to_kernel_layout(tensors, shape);
    let d_context = if args.may_mask_rows {
        // Fully masked rows have zero gradients.
        let fully_masked = results.log_sum_exp.le(FULLY_MASKED);
        results.d_context.masked_fill(&fully_masked, 0.0)
    } else {
        results.d_context.shallow_clone()
    };
    let to_layout = |tensor: &Tensor| queries_to_kernel_layout(&aligned(tensor), shape);
    let log_sum_exp = pad_to_32(&results.log_sum_exp.reshape([batch, heads, seq_q]));
    let ([d_query, d_key, d_value], d_bias) = kernel_backward(
        [&query, &key, &value],
        [
            &to_layout(results.context),
            &log_sum_exp,
            &to_layout(&d_context),
        ],
        args,
        needs_bias_grad,
    );
    let d_bias = d_bias.map(|d_bias| d_bias.reshape(shape.scores().map(|size| size as i64)));
    let [d_query, d_key, d_value] = [d_query, d_key, d_value].map(|grad| grad.transpose(1, 2));
    if shape.group() == 1 {
        return ([d_query, d_key, d_value], d_bias);
    }
    let d_key = d_key.sum_dim_intlist(1, false, None::<Kind>);
    let d_value = d_value.sum_dim_intlist(1, false, None::<Kind>);
    let grads = [
        d_query.reshape(tensors[0].size()),
        d_key.reshape(tensors[1].size()),
        d_value.reshape(tensors[2].size()),
    ];
    (grads, d_bias)
}

/// Pads `[batch, heads, seq_q]` to a multiple of 32 queries, as the backward pass requires of the
/// log-sum-exp.
pub(super) fn pad_to_32(tensor: &Tensor) -> Tensor {
    let padding = (32 - tensor.size()[2] % 32) % 32;
    match padding {
        0 => tensor.contiguous(),
        _ => tensor.constant_pad_nd([0, padding]),
    }
}

/// Context `[batch, seq_q, heads, d]` and log-sum-exp `[batch, heads, seq_q or more]`.
pub(super) fn kernel_forward(tensors: [&Tensor; 3], args: &EfficientArgs) -> [Tensor; 2] {
    #[cfg(test)]
    if tensors[0].device() == tch::Device::Cpu {
        return super::reference::forward(tensors, args);
    }
    let options = zoo_kernels::aten::EfficientOptions {
        mask: args.mask,
        bias: args.bias.as_ref(),
        scale: args.scale,
        dropout: args.dropout,
    };
    zoo_kernels::aten::efficient_attention(tensors, &options)
        .unwrap_or_else(|error| panic!("flash attention: {error}"))
}

/// The gradients of `[batch, seq, heads, d]` tensors and of the bias.
pub(super) fn kernel_backward(
    [query, key, value]: [&Tensor; 3],
    [context, log_sum_exp, d_context]: [&Tensor; 3],
    args: &EfficientArgs,
    needs_bias_grad: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    #[cfg(test)]
    if query.device() == tch::Device::Cpu {
        let tensors = [query, key, value];
        let results = [context, log_sum_exp, d_context];
        return super::reference::backward(tensors, results, args, needs_bias_grad);
    }
    let (probability, seed) = match args.dropout {
        Some(dropout) => (dropout.probability, dropout.seed),
        None => (0.0, 0),
    };
    let (d_query, d_key, d_value, d_bias) = Tensor::internal_efficient_attention_backward(
        d_context,
        query,
        key,
        value,
        args.bias.as_ref(),
        context,
        None::<&Tensor>,
        None::<&Tensor>,
        query.size()[1],
        key.size()[1],
        log_sum_exp,
        probability,
        &Tensor::from(seed),
        &Tensor::from(0i64),
        args.mask as i64,
        needs_bias_grad,
        args.scale,
        None,
        None,
        false,
    );
    ([d_query, d_key, d_value], needs_bias_grad.then_some(d_bias))
}
