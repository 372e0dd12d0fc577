//! Linear attention that forgets: what is further back counts for less, by a factor of
//! each head's own.
//!
//! ```text
//! context_i = Σ_(j ≤ i) γ^(i - j) scale (q_i · k_j) v_j
//! ```
//!
//! Sun et al., [Retentive Network](https://arxiv.org/abs/2307.08621), 2023.

use burn::tensor::Tensor;

use zoo_spec::Retention;

use super::{Attention, Inputs, Output, Params};
use crate::analysis::weighing::Weighing;
use crate::precision::{narrow, widen};
use crate::scan::{LinearState, Sight, causal, refuse_scores};
use crate::{AttentionOptions, AttentionShape};

impl Attention for Retention {
    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let decays = retention_decays(key.dims()[1]);
        retention(query, key, value, &decays, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, _: &Params, _: &Tensor<4>, shape: &AttentionShape) -> Weighing {
        Weighing::Retention(retention_decays(shape.kv_heads))
    }

    fn state(&self, kv_heads: usize) -> Option<LinearState> {
        Some(LinearState::of_retention(retention_decays(kv_heads)))
    }

    fn finish(&self, context: Tensor<4>) -> Tensor<4> {
        match self.group_norm {
            true => group_norm(context),
            false => context,
        }
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        crate::scan::flops(shape, shape.d_head)
    }
}

/// Attends to what was before, the further back the less.
///
/// There is no softmax and no division, and the result is not normalised:
/// [`MultiHeadAttention`](crate::MultiHeadAttention) does that where its mechanism has a
/// `group_norm`. Half-precision tensors are computed in `f32` and rounded once, at the end.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - decays: one for each key and value head, from 0 to 1
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// As [`linear`](crate::linear); if the pattern is not causal; if a decay is missing or
/// outside of 0 to 1.
pub fn retention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    decays: &[f64],
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "retention";
    let shape = options.check_call(op, [&query, &key, &value]);
    refuse_scores(op, options);
    assert!(
        decays.len() == shape.kv_heads,
        "{op}: a decay must be given for each of the {} key and value heads, got {}",
        shape.kv_heads,
        decays.len()
    );
    if let Some(decay) = decays.iter().find(|decay| !(0.0..=1.0).contains(*decay)) {
        panic!("{op}: a decay must be from 0 to 1, got {decay}");
    }
    let sight = Sight::of(op, &options.pattern, &shape, &query.device());
    sight.check_causal(op, &options.pattern);

    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let query = query.mul_scalar(options.scale.unwrap_or(shape.default_scale()));
    let (key, value, poison) = sight.finite(key, value, &shape, options.assume_finite);
    let context = causal(query, key, value, &shape, Some(decays));
    let context = match poison {
        Some(poison) => context + poison,
        None => context,
    };
    narrow(context, stored)
}

/// The paper's decays for so many heads: from 31/32, each half as far from 1 as the last.
pub fn retention_decays(heads: usize) -> Vec<f64> {
    (0..heads)
        .map(|head| 1.0 - (-5.0 - head as f64).exp2())
        .collect()
}

/// The paper's GroupNorm of one group for each head, without parameters: at every position, what
/// a head gave less its mean, divided by its standard deviation. Computed in `f32`.
///
/// # Shapes
///
/// - context: `[batch, heads, seq, d_value]`
/// - result: the same
fn group_norm(context: Tensor<4>) -> Tensor<4> {
    let stored = context.dtype();
    let context = widen(context);
    let centred = context.clone() - context.mean_dim(3);
    let variance = centred.clone().square().mean_dim(3);
    narrow(centred / variance.add_scalar(EPSILON).sqrt(), stored)
}

/// Added to the variance, as PyTorch's GroupNorm does.
const EPSILON: f64 = 1e-5;
