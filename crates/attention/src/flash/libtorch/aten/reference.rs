//! A reference implementation of the memory-efficient kernel, for tests without a CUDA device.

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{BackwardInputs, EfficientArgs, swap_heads};
use super::efficient::MASKED_BIAS;
use crate::AttentionShape;
use crate::flash::call::TiledSettings;

fn scores(query: &Tensor, key: &Tensor, args: &EfficientArgs) -> Tensor {
    let mut scores = swap_heads(query).matmul(&swap_heads(key).transpose(2, 3)) * args.scale;
    if let Some(bias) = &args.bias {
        scores += bias;
    }
    let (seq_q, seq_k) = (query.size()[1], key.size()[1]);
    let last_visible = match args.mask {
        Mask::None => return scores,
        Mask::CausalFromTopLeft => 0,
        Mask::CausalFromBottomRight => seq_k - seq_q,
    };
    let mask = Tensor::ones([seq_q, seq_k], (Kind::Bool, query.device())).triu(last_visible + 1);
    scores.masked_fill(&mask, f64::NEG_INFINITY)
}

/// Multiplies weights by 0 or `1 / (1 - probability)`, depending on the seed and their index.
fn apply_dropout(weights: Tensor, args: &EfficientArgs) -> Tensor {
    let Some(dropout) = args.dropout else {
        return weights;
    };
    let options = (Kind::Int64, weights.device());
    let hash = Tensor::arange(weights.numel() as i64, options) * 7919 + dropout.seed * 104_729;
    let hash = (hash.remainder(100_003i64) * 31_337).remainder(1009i64);
    let is_kept = hash.ge(dropout.probability * 1009.0);
    &weights * is_kept.reshape(weights.size()) / (1.0 - dropout.probability)
}

pub(super) fn forward([query, key, value]: [&Tensor; 3], args: &EfficientArgs) -> [Tensor; 2] {
    let scores = scores(query, key, args);
    let weights = apply_dropout(scores.softmax(-1, None::<Kind>), args);
    let context = weights.matmul(&swap_heads(value));
    [swap_heads(&context), scores.logsumexp(-1, false)]
}

pub(super) fn backward(
    [query, key, value]: [&Tensor; 3],
    [context, log_sum_exp, d_context]: [&Tensor; 3],
    args: &EfficientArgs,
    needs_bias_grad: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    let seq_q = query.size()[1];
    let log_sum_exp = log_sum_exp.narrow(2, 0, seq_q).unsqueeze(3);
    let weights = (scores(query, key, args) - log_sum_exp).exp();
    let d_context_by_head = swap_heads(d_context);
    let delta = (context * d_context).sum_dim_intlist(3, true, None::<Kind>);
    let d_weights = d_context_by_head.matmul(&swap_heads(value).transpose(2, 3));
    let d_scores = &weights * (apply_dropout(d_weights, args) - swap_heads(&delta));
    let weights = apply_dropout(weights, args);
    let grads = [
        d_scores.matmul(&swap_heads(key)) * args.scale,
        d_scores.transpose(2, 3).matmul(&swap_heads(query)) * args.scale,
        weights.transpose(2, 3).matmul(&d_context_by_head),
    ];
    (
        grads.map(|grad| swap_heads(&grad)),
        needs_bias_grad.then_some(d_scores),
    )
}

fn flash_args(is_causal: bool, scale: f64) -> EfficientArgs {
    EfficientArgs {
        mask: if is_causal {
            Mask::CausalFromTopLeft
        } else {
            Mask::None
        },
        bias: None,
        may_mask_rows: false,
        scale,
        dropout: None,
    }
}

/// `[batch, seq, heads, d]` with the heads repeated for each query head that shares them.
fn repeat_heads(query: &Tensor, tensor: &Tensor) -> Tensor {
    let group = query.size()[2] / tensor.size()[2];
    tensor.repeat_interleave_self_int(group, 2, None)
}

/// The flash kernel: as many queries as keys, and consecutive query heads share a key head.
pub(super) fn flash_forward(
    [query, key, value]: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
) -> [Tensor; 2] {
    let [key, value] = [key, value].map(|tensor| repeat_heads(query, tensor));
    forward([query, &key, &value], &flash_args(is_causal, scale))
}

pub(super) fn flash_backward(
    [query, key, value]: [&Tensor; 3],
    results: [&Tensor; 3],
    is_causal: bool,
    scale: f64,
) -> [Tensor; 3] {
    let kv_heads = key.size()[2];
    let [key, value] = [key, value].map(|tensor| repeat_heads(query, tensor));
    let args = flash_args(is_causal, scale);
    let ([d_query, d_key, d_value], _) = backward([query, &key, &value], results, &args, false);
    let sum_group = |grad: Tensor| {
        let size = grad.size();
        grad.reshape([size[0], size[1], kv_heads, -1, size[3]])
            .sum_dim_intlist(3, false, None::<Kind>)
    };
    [d_query, sum_group(d_key), sum_group(d_value)]
}

/// Attention over all keys with the mask of the rule and ALiBi, and its gradients: context,
/// log-sum-exp and the gradients of query, key and value.
pub(super) fn dense(
    [query, key, value]: &[Tensor; 3],
    d_context: &Tensor,
    settings: &TiledSettings,
) -> [Tensor; 5] {
    let shape = &settings.shape;
    let [batch, heads, seq_q, seq_k] = shape.scores().map(|size| size as i64);
    let (group, kv_heads) = (shape.group() as i64, shape.kv_heads as i64);
    let mut mask = Vec::new();
    for example in 0..shape.batch {
        let ranges = [0..shape.seq_q, 0..shape.seq_k];
        settings.rule.write_mask(shape, example, ranges, &mut mask);
    }
    let mask = Tensor::from_slice(&mask).reshape([batch, 1, seq_q, seq_k]);
    let options = (Kind::Float, query.device());
    let rows = Tensor::arange(seq_q, options).unsqueeze(1) + (seq_k - seq_q) as f64;
    let distance = (Tensor::arange(seq_k, options) - rows).abs();
    let slopes = match &settings.alibi {
        Some(slopes) => Tensor::from_slice(slopes),
        None => Tensor::zeros([heads], options),
    };
    let bias = slopes.reshape([1, heads, 1, 1]) * distance * -1.0;
    let bias = (bias + Tensor::zeros([batch, 1, 1, 1], options)).masked_fill(&mask, MASKED_BIAS);
    let args = EfficientArgs {
        bias: Some(bias),
        ..flash_args(false, settings.scale)
    };
    let query = swap_heads(query);
    let [key, value] = [key, value].map(|tensor| repeat_heads(&query, &swap_heads(tensor)));
    let fully_masked = mask.all_dim(3, true);
    let [context, log_sum_exp] = forward([&query, &key, &value], &args);
    let context = context.masked_fill(&swap_heads(&fully_masked), 0.0);
    // Fully masked rows have no gradient.
    let shifted = log_sum_exp.masked_fill(&fully_masked.squeeze_dim(3), 1e30);
    let results = [&context, &shifted, &swap_heads(d_context)];
    let ([d_query, d_key, d_value], _) = backward([&query, &key, &value], results, &args, false);
    let sum_group = |grad: Tensor, width: usize| {
        swap_heads(&grad)
            .reshape([batch, kv_heads, group, seq_k, width as i64])
            .sum_dim_intlist(2, false, None::<Kind>)
    };
    [
        swap_heads(&context),
        log_sum_exp.unsqueeze(3),
        swap_heads(&d_query),
        sum_group(d_key, shape.d_head),
        sum_group(d_value, shape.d_value),
    ]
}

/// Random query, key, value and output gradient of a call.
pub(super) fn random_tensors(shape: &AttentionShape) -> ([Tensor; 3], Tensor) {
    let random = |heads: usize, seq: usize, width: usize| {
        let size = [shape.batch, heads, seq, width].map(|size| size as i64);
        Tensor::randn(size, (Kind::Float, tch::Device::Cpu))
    };
    let tensors = [
        random(shape.heads, shape.seq_q, shape.d_head),
        random(shape.kv_heads, shape.seq_k, shape.d_head),
        random(shape.kv_heads, shape.seq_k, shape.d_value),
    ];
    (tensors, random(shape.heads, shape.seq_q, shape.d_value))
}

/// Compares context, log-sum-exp and gradients with those of [`dense`] attention.
pub(super) fn assert_dense(
    tensors: &[Tensor; 3],
    d_context: &Tensor,
    settings: &TiledSettings,
    actual: [&Tensor; 5],
) {
    let expected = dense(tensors, d_context, settings);
    let names = ["context", "log-sum-exp", "d_query", "d_key", "d_value"];
    for ((actual, expected), name) in actual.into_iter().zip(&expected).zip(names) {
        assert_eq!(actual.size(), expected.size(), "{name}");
        // The log-sum-exp of fully masked rows is only a very negative number.
        let difference = (actual.clamp_min(-1e30) - expected.clamp_min(-1e30)).abs();
        let error = difference.max().double_value(&[]);
        assert!(error < 3e-5, "{name}: error {error}, {settings:?}");
    }
}

/// Compares the gradients with difference quotients along random directions.
pub(super) fn assert_differentiable(
    settings: &TiledSettings,
    forward: impl Fn(&[Tensor; 3]) -> [Tensor; 2],
    backward: impl Fn(&[Tensor; 3], &BackwardInputs<'_>) -> [Tensor; 3],
) {
    let (tensors, d_context) = random_tensors(&settings.shape);
    let [context, log_sum_exp] = forward(&tensors);
    let results = BackwardInputs {
        context: &context,
        log_sum_exp: &log_sum_exp,
        d_context: &d_context,
    };
    let grads = backward(&tensors, &results);
    let loss = |tensors: &[Tensor; 3]| {
        let [context, _] = forward(tensors);
        (context * &d_context).sum(Kind::Double).double_value(&[])
    };
    for (i, grad) in grads.iter().enumerate() {
        let direction = grad.randn_like();
        let step = 1e-2;
        let moved = |by: f64| {
            let mut moved = tensors.each_ref().map(Tensor::shallow_clone);
            moved[i] = &tensors[i] + &direction * by;
            loss(&moved)
        };
        let expected = (moved(step) - moved(-step)) / (2.0 * step);
        let actual = (grad * &direction).sum(Kind::Double).double_value(&[]);
        let bound = 2e-2 * grad.norm().double_value(&[]).max(1.0);
        assert!(
            (actual - expected).abs() < bound,
            "{i}: {actual}, {expected}"
        );
    }
}
