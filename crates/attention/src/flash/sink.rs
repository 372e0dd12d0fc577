//! Softmax attention with a sink: a score without a value, which takes part of each query's weight.
//!
//! ```text
//! weight_ij = exp(s_ij) / (exp(sink) + Σ_j exp(s_ij))
//! ```
//!
//! These are the weights of softmax attention times `sigmoid(log-sum-exp - sink)`, so it needs no
//! kernels of its own. A sink of zero is "softmax off by one", Burn's `quiet_softmax`.
//!
//! Xiao et al., [Efficient Streaming Language Models with Attention
//! Sinks](https://arxiv.org/abs/2309.17453), 2023; Miller, Attention Is Off By One, 2023.

use burn::tensor::{Tensor, activation};

use super::flash_unrounded;
use crate::AttentionOptions;
use crate::precision::{narrow, widen};

/// [`flash`](crate::flash()) with a learned or constant sink for each query head, `[heads]`. The
/// weights of a query sum to less than 1. All inputs have gradients.
///
/// # Shapes
///
/// As for [`flash`](crate::flash()).
///
/// # Panics
///
/// As for [`flash`](crate::flash()), and if the number of sinks is not the number of heads.
pub fn flash_with_sink(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    sink: Tensor<1>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let [_, heads, ..] = query.dims();
    let [sinks] = sink.dims();
    assert!(
        sinks == heads,
        "attention with a sink: expected one sink for each of the {heads} heads, got {sinks}"
    );
    let stored = query.dtype();
    let output = flash_unrounded("attention with a sink", [query, key, value], options);
    let sink = widen(sink).reshape([1, heads, 1, 1]);
    // Finite also for fully masked queries, whose context is zero.
    let log_sum_exp = output.log_sum_exp.clamp_min(-1e30);
    let fraction = activation::sigmoid(log_sum_exp - sink); // [batch, heads, seq_q, 1]
    narrow(widen(output.context) * fraction, stored)
}
