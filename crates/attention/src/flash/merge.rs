//! Parts of an attention, each over some of the keys, joined exactly.

use burn::tensor::Tensor;

use crate::precision::{narrow, widen};

/// What [`flash_with_log_sum_exp`](crate::flash_with_log_sum_exp) returns.
#[derive(Debug, Clone)]
pub struct Flashed {
    /// `[batch, heads, seq_q, d_value]`: for each query, the mean of the values it attends to.
    pub context: Tensor<4>,
    /// `[batch, heads, seq_q, 1]`: the logarithm of the sum of the exponentials of
    /// each query's scores, in `f32`; -1e30 or less for a query that sees nothing.
    pub log_sum_exp: Tensor<4>,
}

/// Joins what the same queries got from different keys, as if they had seen all of
/// them at once: each part weighs as much as the exponentials of its scores sum up to.
///
/// ```text
/// log-sum-exp = ln Σ exp(lse_i)
/// context     = Σ exp(lse_i - log-sum-exp) · context_i
/// ```
///
/// No key may be in two parts. Gradients flow through all of it. For sequences that
/// are spread over devices or computed piece by piece.
///
/// # Shapes
///
/// All parts alike, as [`flash_with_log_sum_exp`](crate::flash_with_log_sum_exp) returns them.
///
/// # Panics
///
/// If there are no parts, or their shapes differ.
pub fn merge(parts: &[Flashed]) -> Flashed {
    let op = "merge of attentions";
    let Some(first) = parts.first() else {
        panic!("{op}: there must be at least one part, got none");
    };
    for part in parts {
        for (name, expected, got) in [
            ("context", first.context.dims(), part.context.dims()),
            (
                "log-sum-exp",
                first.log_sum_exp.dims(),
                part.log_sum_exp.dims(),
            ),
        ] {
            assert!(
                expected == got,
                "{op}: each {name} must be {expected:?} like the first, got {got:?}"
            );
        }
    }
    // A query that sees nothing of a part: finite, or infinity would meet infinity.
    let sizes: Vec<Tensor<4>> = parts
        .iter()
        .map(|part| part.log_sum_exp.clone().clamp_min(NOTHING))
        .collect();
    let all = Tensor::cat(sizes.clone(), 3); // [batch, heads, seq_q, parts]
    // What is taken off and added again changes nothing, nor any gradient.
    let largest = all.clone().detach().max_dim(3); // [batch, heads, seq_q, 1]
    let sum = all.sub(largest.clone()).exp().sum_dim(3); // [batch, heads, seq_q, 1]
    let context = parts
        .iter()
        .zip(sizes)
        .map(|(part, size)| {
            let share = size.sub(largest.clone()).exp().div(sum.clone());
            widen(part.context.clone()) * share
        })
        .reduce(|sum, part| sum + part)
        .expect("at least one part, as was just seen");
    Flashed {
        context: narrow(context, first.context.dtype()),
        log_sum_exp: largest + sum.log(),
    }
}

/// As small as what [`Flashed::log_sum_exp`] says of a query that sees nothing.
const NOTHING: f32 = -2e38;
