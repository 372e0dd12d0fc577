//! What the memory-efficient kernel computes, by plain operations: for tests of what is
//! around it where there is no CUDA device.

use tch::{Kind, Tensor};
use zoo_kernels::aten::Mask;

use super::call::Added;

/// `[batch, heads, seq, d]`
fn turned(tensor: &Tensor) -> Tensor {
    tensor.transpose(1, 2)
}

fn scores(query: &Tensor, key: &Tensor, added: &Added, scale: f64) -> Tensor {
    let mut scores = turned(query).matmul(&turned(key).transpose(2, 3)) * scale;
    if let Some(bias) = &added.bias {
        scores += bias;
    }
    let (seq_q, seq_k) = (query.size()[1], key.size()[1]);
    let last_seen = match added.mask {
        Mask::Nothing => return scores,
        Mask::CausalFromFirst => 0,
        Mask::CausalToLast => seq_k - seq_q,
    };
    let hidden = Tensor::ones([seq_q, seq_k], (Kind::Bool, query.device())).triu(last_seen + 1);
    scores.masked_fill(&hidden, f64::NEG_INFINITY)
}

pub(super) fn forward([query, key, value]: [&Tensor; 3], added: &Added, scale: f64) -> [Tensor; 2] {
    let scores = scores(query, key, added, scale);
    let context = scores.softmax(-1, None::<Kind>).matmul(&turned(value));
    [turned(&context), scores.logsumexp(-1, false)]
}

pub(super) fn backward(
    [query, key, value]: [&Tensor; 3],
    [context, log_sum_exp, d_context]: [&Tensor; 3],
    added: &Added,
    scale: f64,
    wants_bias: bool,
) -> ([Tensor; 3], Option<Tensor>) {
    let seq_q = query.size()[1];
    let log_sum_exp = log_sum_exp.narrow(2, 0, seq_q).unsqueeze(3);
    let weights = (scores(query, key, added, scale) - log_sum_exp).exp();
    let arrived = turned(d_context);
    let mean = (context * d_context).sum_dim_intlist(3, true, None::<Kind>);
    let d_weights = arrived.matmul(&turned(value).transpose(2, 3)) - turned(&mean);
    let d_scores = &weights * d_weights;
    let gradients = [
        d_scores.matmul(&turned(key)) * scale,
        d_scores.transpose(2, 3).matmul(&turned(query)) * scale,
        weights.transpose(2, 3).matmul(&arrived),
    ];
    (
        gradients.map(|gradient| turned(&gradient)),
        wants_bias.then_some(d_scores),
    )
}
