//! Exact merging of partial attention results over disjoint sets of keys.

use burn::tensor::{DType, Tensor};

use crate::precision::{narrow, widen};

/// The output of [`flash_with_log_sum_exp`](crate::flash::flash_with_log_sum_exp).
#[derive(Debug, Clone)]
pub struct FlashOutput {
    /// `[batch, heads, seq_q, d_value]`: for each query, the weighted mean of the values.
    pub context: Tensor<4>,
    /// `[batch, heads, seq_q, 1]`: the logarithm of the sum of the exponentials of
    /// each query's scores, in `f32`; -1e30 or less for a fully masked row.
    pub log_sum_exp: Tensor<4>,
}

impl FlashOutput {
    /// The output with the context in a dtype.
    pub(super) fn rounded(self, dtype: DType) -> Self {
        Self {
            context: narrow(self.context, dtype),
            ..self
        }
    }
}

/// Merges the outputs of the same queries over disjoint sets of keys. The result equals attention
/// over all keys at once: each part is weighted by the sum of the exponentials of its scores.
///
/// ```text
/// log-sum-exp = ln Σ exp(lse_i)
/// context     = Σ exp(lse_i - log-sum-exp) · context_i
/// ```
///
/// No key may be in two parts. The result is differentiable. Used for sequences that are
/// distributed over devices or computed in chunks.
///
/// # Shapes
///
/// The same for all parts, as in [`FlashOutput`].
///
/// # Panics
///
/// If there are no parts, or their shapes differ.
pub fn merge(parts: &[FlashOutput]) -> FlashOutput {
    let op = "merge";
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
    // Finite also for fully masked rows: infinity minus infinity would be NaN.
    let log_sum_exps: Vec<Tensor<4>> = parts
        .iter()
        .map(|part| part.log_sum_exp.clone().clamp_min(FULLY_MASKED))
        .collect();
    let all = Tensor::cat(log_sum_exps.clone(), 3); // [batch, heads, seq_q, parts]
    // Detached: the maximum cancels out, so it has no gradient.
    let max = all.clone().detach().max_dim(3); // [batch, heads, seq_q, 1]
    let sum = all.sub(max.clone()).exp().sum_dim(3); // [batch, heads, seq_q, 1]
    let context = parts
        .iter()
        .zip(log_sum_exps)
        .map(|(part, log_sum_exp)| {
            let weight = log_sum_exp.sub(max.clone()).exp().div(sum.clone());
            widen(part.context.clone()) * weight
        })
        .reduce(|sum, part| sum + part)
        .expect("there is at least one part");
    FlashOutput {
        context: narrow(context, first.context.dtype()),
        log_sum_exp: max + sum.log(),
    }
}

/// [`merge`] of stacked contexts, `[parts, rows, d_value]`, and log-sum-exps, `[parts, rows, 1]`: the
/// context `[rows, d_value]`.
#[cfg(feature = "tch")]
pub(crate) fn merge_stacked([contexts, log_sum_exps]: [Tensor<3>; 2]) -> Tensor<2> {
    let [parts, _, _] = contexts.dims();
    if parts == 1 {
        return contexts.squeeze_dim(0);
    }
    let log_sum_exps = log_sum_exps.clamp_min(FULLY_MASKED);
    // Detached, as above.
    let max = log_sum_exps.clone().detach().max_dim(0);
    let exponentials = log_sum_exps.sub(max).exp();
    let weights = exponentials.clone().div(exponentials.sum_dim(0));
    (contexts * weights).sum_dim(0).squeeze_dim(0)
}

/// The log-sum-exp of a fully masked row.
pub(crate) const FULLY_MASKED: f32 = -2e38;
