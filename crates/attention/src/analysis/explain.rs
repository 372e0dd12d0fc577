//! Attention weights of chosen queries, also for mechanisms that do not materialise them.
//!
//! ```text
//! Σ_j weight_ij · value_j = the mechanism's own result for query i
//! ```
//!
//! The weights are recomputed for these queries only, `rows x seq_k` for each head. No larger
//! matrix is allocated, except by mechanisms that materialise one anyway.

use burn::tensor::Tensor;

use crate::analysis::weights::WeightFunction;
use crate::mechanisms::hard::hard_with_weights;
use crate::mechanisms::local_p::local_predictive_with_weights;
use crate::mechanisms::standard::{apply_score_options, dot_products, softmax as weights_of};
use crate::mechanisms::{self, MechanismConfig, Params, additive, multiplicative};
use crate::mechanisms::{lsh_mask, normalize_rows};
use crate::pattern::select_rows_broadcast;
use crate::precision::{narrow, widen};
use crate::scan::{linear_weights, retention_weights};
use crate::shape::select_indices;
use crate::{AttentionOptions, AttentionShape};

/// The attention weights of the queries `rows`, for any mechanism.
///
/// For softmax and [`linear`](crate::mechanisms::linear::linear()) attention they sum to one, or to zero for a fully
/// masked query. For [`retention`](crate::mechanisms::retention::retention) and [`local-p`](crate::mechanisms::local_p::local_predictive()) they
/// are not normalised. Dropout is not applied. Parameters are initialised as in
/// [`attend`](crate::attend); for those of a module see
/// [`MultiHeadAttention::explain`](crate::MultiHeadAttention::explain). The weights are
/// differentiable.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - rows: query indices below `seq_q`, in any order
/// - result: `[batch, heads, rows, seq_k]`
///
/// # Panics
///
/// As the mechanism itself; if a row is out of range, or there are none.
pub fn explain(
    mechanism: impl Into<MechanismConfig>,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4> {
    let shape = AttentionShape::from_tensors(OP, &query, &key, &key);
    let mechanism = mechanism.into();
    let mechanism = mechanisms::implementation(&mechanism);
    let weight_fn = mechanism.weight_fn(&Params::default(), &query, &shape);
    let options = mechanism.options(options, shape.seq_k, shape.d_head);
    explain_with(&weight_fn, query, key, &options, rows)
}

const OP: &str = "attention weights";

/// [`explain`] for a weight function.
pub(crate) fn explain_with(
    weight_fn: &WeightFunction,
    query: Tensor<4>,
    key: Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &key]);
    assert!(!rows.is_empty(), "{OP}: rows must not be empty");
    if let Some(row) = rows.iter().find(|&&row| row >= shape.seq_q) {
        let seq_q = shape.seq_q;
        panic!("{OP}: rows must be below seq_q = {seq_q}, got {row}");
    }
    let stored = query.dtype();
    let selected = || select_indices(query.clone(), 2, rows);
    let softmax = |scores: Tensor<4>| {
        let options = AttentionOptions {
            bias: options
                .bias
                .clone()
                .map(|bias| select_rows_broadcast(bias, rows)),
            ..options.clone()
        };
        let device = scores.device();
        let mask = options.pattern.dense_mask_rows(OP, &shape, rows, &device);
        let scores = apply_score_options(scores, &options, &shape, rows.iter().copied());
        narrow(weights_of(scores, mask), stored)
    };
    let scale = options.scale.unwrap_or(shape.default_scale());
    match weight_fn {
        WeightFunction::Softmax => {
            softmax(dot_products(widen(selected()), widen(key), scale, &shape))
        }
        WeightFunction::Multiplicative(matrix) => {
            let query = multiplicative::project_query(OP, selected(), matrix.clone(), &shape);
            let scale = options.scale.unwrap_or(1.0);
            softmax(dot_products(query, widen(key), scale, &shape))
        }
        WeightFunction::Additive(vector) => {
            let (query, vector) = (selected(), vector.clone());
            let scores = additive::mlp_scores(OP, query, key, vector, options.scale, &shape);
            softmax(scores)
        }
        WeightFunction::Features(features) => {
            linear_weights(selected(), key, features, options, &shape, rows)
        }
        WeightFunction::Retention(decays) => {
            retention_weights(selected(), key, decays, options, &shape, rows)
        }
        WeightFunction::Hashed(hashing) => {
            let shape = AttentionShape::from_tensors(OP, &query, &query, &query);
            let mask = lsh_mask(OP, hashing, &query, options, rows);
            let key = normalize_rows(widen(query.clone()));
            let scores = dot_products(widen(selected()), key, scale, &shape);
            let scores = apply_score_options(scores, options, &shape, rows.iter().copied());
            narrow(weights_of(scores, Some(mask)), stored)
        }
        // The last two materialise all weights.
        WeightFunction::Hard(selection) => {
            let output = hard_with_weights(query, key.clone(), key, *selection, options);
            select_indices(output.into_weights(), 2, rows)
        }
        WeightFunction::Predicted(params, window) => {
            let params = params.as_ref().clone();
            let (window, value) = (*window, key.clone());
            let output = local_predictive_with_weights(query, key, value, params, window, options);
            select_indices(output.into_weights(), 2, rows)
        }
    }
}
