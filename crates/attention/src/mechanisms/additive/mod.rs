//! The first attention: a small network says how well a query and a key go together.
//!
//! ```text
//! score_ij = v · tanh(W₁ q_i + W₂ k_j)
//! context  = softmax(score) · value        over the keys a query may see
//! ```
//!
//! Bahdanau et al., [Neural Machine Translation by Jointly Learning to Align and
//! Translate](https://arxiv.org/abs/1409.0473), 2014. Luong's `concat` score,
//! `v · tanh(W [q; k])`, is the same with `W = [W₁ W₂]`.
//!
//! The network runs tile by tile, forward and backward: its `seq_q x seq_k x d` numbers
//! are never held, only the scores are.

mod autodiff;
#[allow(deprecated)] // Burn 0.22 is the last to carry NdArray and LibTorch; we carry them.
mod ops;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};
use zoo_spec::Additive;

use self::ops::AdditiveForward;
use super::{Attention, HeadSizes, Inputs, MechanismParams, Output, Params, init_vector};
use crate::analysis::weighing::Weighing;
use crate::finite::FiniteRows;
use crate::flash::has_body;
use crate::mechanisms::standard::{Attended, attend_by_scores, may_hide, poison_of_scores};
use crate::precision::{check_parameter, widen};
use crate::{AttentionOptions, AttentionShape};

impl Attention for Additive {
    fn default_scale(&self, _: usize) -> f64 {
        1.0
    }

    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        MechanismParams {
            vector: Some(init_vector(sizes, device)),
            ..MechanismParams::none()
        }
    }

    fn forward(&self, inputs: Inputs, params: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let vector = params.vector(&query);
        additive(query, key, value, vector, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn weighing(&self, params: &Params, query: &Tensor<4>, _: &AttentionShape) -> Weighing {
        Weighing::Additive(params.vector(query))
    }
}

/// Attends by the score of a small network; returns its weights.
///
/// Queries and keys come projected: `W₁ q` and `W₂ k`. Half-precision tensors are computed
/// in `f32` and rounded once, at the end. Scores are multiplied by nothing unless a scale
/// is given.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - vector: `[heads, d_head]`, the `v` of each head
/// - context: `[batch, heads, seq_q, d_value]`
/// - weights: `[batch, heads, seq_q, seq_k]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, or the tensors are not of one
/// number type of up to 32 bits.
pub fn additive(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    vector: Tensor<2>,
    options: &AttentionOptions,
) -> Attended {
    let op = "additive attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    let stored = query.dtype();
    let value = widen(value);
    let scores = if may_hide(options) {
        let [query, key] = [query, key].map(FiniteRows::of);
        let scores = scores_of(op, query.finite, key.finite, vector, options.scale, &shape);
        let poison = poison_of_scores(query.infinite, key.infinite, &shape);
        scores + widen(poison)
    } else {
        scores_of(op, query, key, vector, options.scale, &shape)
    };
    attend_by_scores(op, scores, value, options, &shape, stored)
}

/// The scores of the queries there are, in `f32`: `[batch, heads, queries, seq_k]`.
pub(crate) fn scores_of(
    op: &str,
    query: Tensor<4>,
    key: Tensor<4>,
    vector: Tensor<2>,
    scale: Option<f64>,
    shape: &AttentionShape,
) -> Tensor<4> {
    assert!(
        vector.dims() == [shape.heads, shape.d_head],
        "{op}: the vector must be [heads = {}, d_head = {}], got {:?}",
        shape.heads,
        shape.d_head,
        vector.dims()
    );
    check_parameter(op, "vector", query.dtype(), vector.dtype());
    let [query, key] = [query, key].map(widen);
    let (kv_heads, seq_k) = (shape.kv_heads, shape.seq_k);
    let [batch, heads, queries, d_head] = query.dims();
    // Query heads that share a key head lie side by side, each with a vector of its own.
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

/// `Σ_x vector_ix tanh(query_ix + key_jx)`: `[batch, heads, rows, seq_k]`, with a vector
/// for each row.
fn scores(query: Tensor<4>, key: Tensor<4>, vector: Tensor<4>) -> Tensor<4> {
    let [query, key, vector] = [query, key, vector].map(Tensor::into_dispatch);
    let scores = if has_body(&query.kind) {
        <Dispatch as AdditiveForward>::additive_scores(query, key, vector)
    } else {
        ops::scores::<Dispatch>(query, key, vector)
    };
    Tensor::from_dispatch(scores)
}
