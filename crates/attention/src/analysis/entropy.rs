//! How spread out attention is: 0 for a query that looks at one key alone, `ln n` for one
//! that looks at `n` keys alike.
//!
//! ```text
//! H_i = -Σ_j p_ij ln p_ij = lse_i - Σ_j p_ij s_ij         lse_i = ln Σ_j exp(s_ij)
//! ```
//!
//! Where scores are products, `Σ_j p_ij s_ij = scale · q_i · (Σ_j p_ij k_j)`: the mean of
//! the keys, which is [`flash`](crate::flash) with the keys for values. Entropy and its
//! gradient then take memory that grows with the length alone.

use burn::tensor::{Bool, Tensor};

use crate::analysis::explain::explain_by;
use crate::analysis::weighing::Weighing;
use crate::flash::flash_with_log_sum_exp;
use crate::mechanisms::multiplicative;
use crate::precision::{check, widen};
use crate::{AttentionOptions, AttentionShape};

/// The entropy of each query's weights, in `f32`, with a gradient.
///
/// A query that sees one key or none has none. Dropout is left out. With a softcap, ALiBi or
/// a bias, the weights are held, `seq_q x seq_k` for each head; without, nothing like it is.
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
    of_softmax(query, key, options).entropy
}

/// The mean [`entropy`] of all queries that see anything: a regulariser that needs no
/// labels, in the memory that entropy takes.
///
/// Added to a loss times a positive coefficient it sharpens attention; times a negative one
/// it spreads it out.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - result: `[1]`
///
/// # Panics
///
/// As there.
pub fn entropy_penalty(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Tensor<1> {
    of_softmax(query, key, options).mean()
}

/// The entropies of queries, and which of them see anything.
pub(crate) struct Entropies {
    /// `[batch, heads, seq_q]`, zero for those that see nothing.
    entropy: Tensor<3>,
    /// `[batch, heads, seq_q]`: they see nothing.
    blind: Tensor<3, Bool>,
}

impl Entropies {
    /// The entropies of the weights that `weighing` gives the keys.
    ///
    /// # Panics
    ///
    /// If these are not a distribution: mechanisms without one declare so in their capabilities.
    pub(crate) fn of(
        weighing: &Weighing,
        query: Tensor<4>,
        key: Tensor<4>,
        options: &AttentionOptions,
    ) -> Self {
        match weighing {
            Weighing::Softmax => of_softmax(query, key, options),
            Weighing::Multiplicative(matrix) => {
                let op = "entropy of multiplicative attention";
                let shape = AttentionShape::of(op, &query, &key, &key);
                let query = multiplicative::through(op, query, matrix.clone(), &shape);
                let options = AttentionOptions {
                    scale: Some(options.scale.unwrap_or(1.0)),
                    ..options.clone()
                };
                of_softmax(query, widen(key), &options)
            }
            // Those of a network are held anyway; products of features are shares only
            // when they are written out.
            Weighing::Additive(_)
            | Weighing::Features(_)
            | Weighing::Hashed(_)
            | Weighing::Hard(_) => of_weights(weighing, query, key, options),
            Weighing::Retention(_) | Weighing::Predicted(..) => {
                panic!("weights that do not sum to one have no entropy")
            }
        }
    }

    /// Of each query: `[batch, heads, seq_q]`, zero for those that see nothing.
    pub(crate) fn of_queries(self) -> Tensor<3> {
        self.entropy
    }

    /// The mean over the queries of each head that see anything: `[batch, heads]`.
    pub(crate) fn of_heads(self) -> Tensor<2> {
        let [batch, heads, _] = self.entropy.dims();
        let seeing = self.seeing().sum_dim(2);
        let mean = self.entropy.sum_dim(2) / seeing.clamp_min(1.0);
        mean.reshape([batch, heads])
    }

    /// The mean over all of them.
    pub(crate) fn mean(self) -> Tensor<1> {
        let seeing = self.seeing().sum();
        self.entropy.sum() / seeing.clamp_min(1.0)
    }

    /// One for each query that sees anything.
    fn seeing(&self) -> Tensor<3> {
        self.entropy.ones_like().mask_fill(self.blind.clone(), 0.0)
    }
}

fn of_softmax(query: Tensor<4>, key: Tensor<4>, options: &AttentionOptions) -> Entropies {
    let op = "entropy of attention";
    let shape = AttentionShape::of(op, &query, &key, &key);
    check(op, [query.dtype(), key.dtype(), key.dtype()]);
    let is_plain = options.softcap.is_none() && options.alibi.is_none() && options.bias.is_none();
    if !is_plain {
        return of_weights(&Weighing::Softmax, query, key, options);
    }
    let scale = options.scale.unwrap_or(shape.default_scale());
    let options = AttentionOptions {
        dropout: None,
        ..options.clone()
    };
    let [query, key] = [query, key].map(widen);
    let flashed = flash_with_log_sum_exp(query.clone(), key.clone(), key, &options);
    let mean_score = (query * flashed.context).sum_dim(3).mul_scalar(scale); // [batch, heads, seq_q, 1]
    let log_sum_exp = flashed.log_sum_exp;
    let blind = log_sum_exp.clone().lower_elem(ALMOST_NOTHING);
    // The difference of numbers as large as scores: what is left of their rounding is not
    // to be below zero.
    let entropy = (log_sum_exp - mean_score)
        .mask_fill(blind.clone(), 0.0)
        .clamp_min(0.0);
    let dims = [shape.batch, shape.heads, shape.seq_q];
    Entropies {
        entropy: entropy.reshape(dims),
        blind: blind.reshape(dims),
    }
}

/// Above what the log-sum-exp of a query that sees nothing is, and below any other.
const ALMOST_NOTHING: f32 = -1e29;

/// From the weights themselves, all of them held.
fn of_weights(
    weighing: &Weighing,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
) -> Entropies {
    let [batch, heads, seq_q, _] = query.dims();
    let all: Vec<usize> = (0..seq_q).collect();
    let [query, key] = [query, key].map(widen);
    let weights = explain_by(weighing, query, key, options, &all);
    // A weight of zero times the logarithm of anything is nothing.
    let logarithms = weights.clone().clamp_min(1e-30).log();
    let entropy = (weights.clone() * logarithms).sum_dim(3).neg();
    let blind = weights.sum_dim(3).lower_elem(0.5);
    let dims = [batch, heads, seq_q];
    Entropies {
        entropy: entropy.clamp_min(0.0).reshape(dims),
        blind: blind.reshape(dims),
    }
}
