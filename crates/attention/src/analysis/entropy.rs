//! Attention entropy: 0 for a query that attends to a single key, `ln n` for uniform attention over
//! `n` keys.
//!
//! ```text
//! H_i = -Σ_j p_ij ln p_ij = lse_i - Σ_j p_ij s_ij         lse_i = ln Σ_j exp(s_ij)
//! ```
//!
//! If scores are dot products, `Σ_j p_ij s_ij = scale · q_i · (Σ_j p_ij k_j)`: the weighted mean of
//! the keys, which is [`flash`](crate::flash) with the keys as values. Entropy and its gradient
//! then need memory linear in the sequence length.

use burn::tensor::{Bool, Tensor};

use crate::analysis::explain::explain_with;
use crate::analysis::weights::WeightFunction;
use crate::flash::flash_with_log_sum_exp;
use crate::mechanisms::multiplicative;
use crate::precision::{check, widen};
use crate::{AttentionOptions, AttentionShape};

/// The entropy of each query's attention weights, in `f32`; differentiable.
///
/// It is zero for a query with one visible key or none. Dropout is ignored. With a softcap, ALiBi
/// or a bias, the `seq_q x seq_k` weights of each head are materialised; otherwise they are not.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - result: `[batch, heads, seq_q]`
///
/// # Panics
///
/// As [`flash`](crate::flash()).
pub fn entropy(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Tensor<3> {
    softmax_entropies(query, key, options).entropy
}

/// The mean [`entropy`] of all queries that are not fully masked, for use as a regulariser.
///
/// Added to a loss, it sharpens attention with a positive coefficient and flattens it with a
/// negative one. The arguments and panics are those of [`entropy`]; the result has one element.
pub fn entropy_penalty(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Tensor<1> {
    softmax_entropies(query, key, options).mean()
}

/// The entropies of queries, and which queries are fully masked.
pub(crate) struct Entropies {
    /// `[batch, heads, seq_q]`, zero for fully masked queries.
    pub(crate) entropy: Tensor<3>,
    /// `[batch, heads, seq_q]`
    fully_masked: Tensor<3, Bool>,
}

impl Entropies {
    /// Panics if the weights are not a distribution, which the capabilities of a mechanism declare.
    pub(crate) fn new(
        weight_fn: &WeightFunction,
        query: Tensor<4>,
        key: Tensor<4>,
        options: &AttentionOptions,
    ) -> Self {
        match weight_fn {
            WeightFunction::Softmax => softmax_entropies(query, key, options),
            WeightFunction::Multiplicative(matrix) => {
                let op = "entropy of multiplicative attention";
                let shape = AttentionShape::from_tensors(op, &query, &key, &key);
                let query = multiplicative::project_query(op, query, matrix.clone(), &shape);
                let options = AttentionOptions {
                    scale: Some(options.scale.unwrap_or(1.0)),
                    ..options.clone()
                };
                softmax_entropies(query, widen(key), &options)
            }
            // These mechanisms have to materialise their weights.
            WeightFunction::Additive(_)
            | WeightFunction::Features(_)
            | WeightFunction::Hashed(_)
            | WeightFunction::Blocks(_)
            | WeightFunction::Hard(_) => materialised_entropies(weight_fn, query, key, options),
            WeightFunction::Retention(_)
            | WeightFunction::Gated(_)
            | WeightFunction::Branches(..)
            | WeightFunction::Sink(_)
            | WeightFunction::Sigmoid
            | WeightFunction::Differential(_)
            | WeightFunction::Landmarks(_)
            | WeightFunction::Projected(_)
            | WeightFunction::Predicted(..) => {
                panic!("weights that do not sum to one have no entropy")
            }
        }
    }

    /// The mean of each head over the queries that are not fully masked: `[batch, heads]`.
    pub(crate) fn per_head(self) -> Tensor<2> {
        let [batch, heads, _] = self.entropy.dims();
        let count = self.is_visible().sum_dim(2);
        let mean = self.entropy.sum_dim(2) / count.clamp_min(1.0);
        mean.reshape([batch, heads])
    }

    /// The mean over all queries that are not fully masked.
    pub(crate) fn mean(self) -> Tensor<1> {
        let count = self.is_visible().sum();
        self.entropy.sum() / count.clamp_min(1.0)
    }

    /// 1 for each query that is not fully masked.
    fn is_visible(&self) -> Tensor<3> {
        let ones = self.entropy.ones_like();
        ones.mask_fill(self.fully_masked.clone(), 0.0)
    }
}

fn softmax_entropies(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Entropies {
    let op = "entropy of attention";
    let shape = AttentionShape::from_tensors(op, &query, &key, &key);
    check(op, [query.dtype(), key.dtype(), key.dtype()]);
    let is_plain = options.softcap.is_none()
        && options.alibi.is_none()
        && !options.has_bias()
        && options.score_mod.is_none();
    if !is_plain {
        return materialised_entropies(&WeightFunction::Softmax, query, key, options);
    }
    let scale = options.scale.unwrap_or(shape.default_scale());
    let options = AttentionOptions {
        dropout: None,
        ..options.clone()
    };
    let [query, key] = [query, key].map(widen);
    let output = flash_with_log_sum_exp(query.clone(), key.clone(), key, &options);
    let mean_score = (query * output.context).sum_dim(3).mul_scalar(scale); // [batch, heads, seq_q, 1]
    let log_sum_exp = output.log_sum_exp;
    let fully_masked = log_sum_exp.clone().lower_elem(MIN_LOG_SUM_EXP);
    // Rounding of the difference must not make it negative.
    let entropy = (log_sum_exp - mean_score)
        .mask_fill(fully_masked.clone(), 0.0)
        .clamp_min(0.0);
    let dims = [shape.batch, shape.heads, shape.seq_q];
    Entropies {
        entropy: entropy.reshape(dims),
        fully_masked: fully_masked.reshape(dims),
    }
}

/// Above the log-sum-exp of fully masked queries and below that of any other.
const MIN_LOG_SUM_EXP: f32 = -1e29;

/// The entropies of materialised weights.
fn materialised_entropies(
    weight_fn: &WeightFunction,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
) -> Entropies {
    let [batch, heads, seq_q, _] = query.dims();
    let all: Vec<usize> = (0..seq_q).collect();
    let [query, key] = [query, key].map(widen);
    let weights = explain_with(weight_fn, query, key, options, &all);
    // Clamped: 0 · ln 0 must be 0.
    let logarithms = weights.clone().clamp_min(1e-30).log();
    let entropy = (weights.clone() * logarithms).sum_dim(3).neg();
    let fully_masked = weights.sum_dim(3).lower_elem(0.5);
    let dims = [batch, heads, seq_q];
    Entropies {
        entropy: entropy.clamp_min(0.0).reshape(dims),
        fully_masked: fully_masked.reshape(dims),
    }
}
