//! Additive attention: softmax of MLP scores.
//!
//! ```text
//! score_ij = v · tanh(W₁ q_i + W₂ k_j)
//! context  = softmax(score) · value        over the visible keys
//! ```
//!
//! Bahdanau et al., [Neural Machine Translation by Jointly Learning to Align and
//! Translate](https://arxiv.org/abs/1409.0473), 2014. Luong's `concat` score,
//! `v · tanh(W [q; k])`, is the same with `W = [W₁ W₂]`.
//!
//! Computed by the tiled kernels: neither the scores nor the `seq_q x seq_k x d` activations are
//! materialised, forward or backward.

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};
use zoo_spec::Additive;

use super::{Attention, Call, HeadSizes, Inputs, MechanismParams, Params, vector_param};
use crate::analysis::weights::WeightFunction;
use crate::finite::FiniteRows;
use crate::flash::additive::{AdditiveForward, scores as tiled_scores};
use crate::flash::{FlashKernel, Program, flash_with_program, has_kernels, kernel_of_program};
use crate::mechanisms::standard::{apply_score_options, attend_with_scores, may_mask, nan_scores};
use crate::precision::{check_parameter, widen};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Additive {
    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            vector: Some(vector_param(sizes, device)),
            ..MechanismParams::default()
        }
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let vector = call.params.vector(&query);
        additive(query, key, value, vector, call.options).into()
    }

    fn kernel(&self, tensors: [&Tensor<4>; 3], options: &AttentionOptions) -> Option<FlashKernel> {
        Some(kernel_of_program(tensors, options, Program::Additive))
    }

    fn weight_fn(&self, inputs: &Inputs, params: &Params) -> WeightFunction {
        WeightFunction::Additive(params.vector(&inputs.query))
    }
}

/// Additive attention.
///
/// Queries and keys are already projected: `W₁ q` and `W₂ k`. Half-precision tensors are computed
/// in `f32` and rounded once, at the end. The default scale is 1.
///
/// Shapes and panics are those of [`flash`](crate::flash()); `vector` is `[heads, d_head]`, the `v`
/// of each head.
pub fn additive(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    vector: Tensor<2>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "additive attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    check_parameter(op, "vector", &vector, &shape, query.dtype());
    let parameter = vector.reshape([1, shape.heads, 1, shape.d_head]);
    let options = options.clone().with_scale(options.scale.unwrap_or(1.0));
    let tensors = [query, key, value];
    flash_with_program(op, tensors, &options, Program::Additive, Some(parameter)).context
}

/// [`additive`] that materialises its weights and returns them, too.
///
/// Shapes and panics are those of [`additive`].
pub fn additive_with_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    vector: Tensor<2>,
    options: &AttentionOptions,
) -> AttentionOutput {
    let op = "additive attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    let stored = query.dtype();
    let value = widen(value);
    let scores = if may_mask(options) {
        let [query, key] = [query, key].map(FiniteRows::new);
        let scores = mlp_scores(op, query.finite, key.finite, vector, options.scale, &shape);
        let poison = nan_scores(query.non_finite, key.non_finite, &shape);
        scores + widen(poison)
    } else {
        mlp_scores(op, query, key, vector, options.scale, &shape)
    };
    let scores = apply_score_options(scores, options, &shape, 0..shape.seq_q);
    attend_with_scores(op, scores, value, options, &shape, stored)
}

/// The scores of any number of queries, in `f32`: `[batch, heads, queries, seq_k]`.
pub(crate) fn mlp_scores(
    op: &str,
    query: Tensor<4>,
    key: Tensor<4>,
    vector: Tensor<2>,
    scale: Option<f64>,
    shape: &AttentionShape,
) -> Tensor<4> {
    check_parameter(op, "vector", &vector, shape, query.dtype());
    let [query, key] = [query, key].map(widen);
    let (kv_heads, seq_k) = (shape.kv_heads, shape.seq_k);
    let [batch, heads, queries, d_head] = query.dims();
    // Query heads that share a key head are concatenated along the rows, each with its own vector.
    let group = shape.group();
    let query = query.reshape([batch, kv_heads, group * queries, d_head]);
    let vector = widen(vector.reshape([1, kv_heads, group, d_head]))
        .reshape([1, kv_heads, group, 1, d_head])
        .expand([1, kv_heads, group, queries, d_head])
        .reshape([1, kv_heads, group * queries, d_head]);
    let scores = scores(query, key, vector).reshape([batch, heads, queries, seq_k]);
    match scale {
        Some(scale) => scores.mul_scalar(scale),
        None => scores,
    }
}

/// `Σ_x vector_ix tanh(query_ix + key_jx)`: `[batch, heads, rows, seq_k]`, with one vector per row.
fn scores(query: Tensor<4>, key: Tensor<4>, vector: Tensor<4>) -> Tensor<4> {
    let [query, key, vector] = [query, key, vector].map(Tensor::into_dispatch);
    let scores = if has_kernels(&query.kind) {
        <Dispatch as AdditiveForward>::additive_scores(query, key, vector)
    } else {
        tiled_scores::<Dispatch>(query, key, vector)
    };
    Tensor::from_dispatch(scores)
}
