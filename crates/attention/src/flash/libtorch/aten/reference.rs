//! A reference implementation of the memory-efficient kernel, for tests without a CUDA device.

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::{EfficientArgs, swap_heads};

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

pub(super) fn forward([query, key, value]: [&Tensor; 3], args: &EfficientArgs) -> [Tensor; 2] {
    let scores = scores(query, key, args);
    let context = scores.softmax(-1, None::<Kind>).matmul(&swap_heads(value));
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
    let d_weights =
        d_context_by_head.matmul(&swap_heads(value).transpose(2, 3)) - swap_heads(&delta);
    let d_scores = &weights * d_weights;
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
