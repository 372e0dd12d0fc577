//! Attention weights of chosen queries, also for mechanisms that do not materialise them.
//!
//! ```text
//! Σ_j weight_ij · value_j = the mechanism's own result for query i
//! ```
//!
//! The weights are recomputed for these queries only, `rows x seq_k` for each head. No larger
//! matrix is allocated, except by mechanisms that materialise one anyway.

use burn::tensor::{Bool, Tensor, activation};

use crate::analysis::weights::{GatedWeights, WeightFunction};
use crate::mechanisms::differential::halves;
use crate::mechanisms::hard::hard_with_weights;
use crate::mechanisms::linformer::projected_weights;
use crate::mechanisms::local_p::local_predictive_with_weights;
use crate::mechanisms::moba::moba_mask;
use crate::mechanisms::native_sparse::native_sparse_weights;
use crate::mechanisms::nystrom::landmark_weights;
use crate::mechanisms::standard::{apply_score_options, dot_products, softmax as weights_of};
use crate::mechanisms::{self, Call, Inputs, MechanismConfig, Params, additive, multiplicative};
use crate::mechanisms::{lsh_mask, normalize_rows};
use crate::pattern::select_rows_broadcast;
use crate::precision::{narrow, widen};
use crate::scan::{gated_weights, linear_weights, retention_weights};
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
    AttentionShape::from_tensors(OP, &query, &key, &key);
    let mechanism = mechanism.into();
    let mechanism = mechanisms::implementation(&mechanism);
    let (params, inputs) = (&Params::default(), Inputs::new([query, key.clone(), key]));
    let weight_fn = mechanism.weight_fn(&inputs, params);
    let options = mechanism.options(&inputs, Call { params, options });
    explain_with(&weight_fn, inputs.query, inputs.key, &options, rows)
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
    let masked = |scores: Tensor<4>| {
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
        (scores, mask)
    };
    let softmax = |scores: Tensor<4>| {
        let (scores, mask) = masked(scores);
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
        WeightFunction::Blocks(config) => {
            let mask = moba_mask(OP, config, [&query, &key], options, &shape, rows);
            let scores = dot_products(widen(selected()), widen(key), scale, &shape);
            let scores = apply_score_options(scores, options, &shape, rows.iter().copied());
            narrow(weights_of(scores, Some(mask)), stored)
        }
        WeightFunction::Branches(config, gates) => {
            native_sparse_weights(OP, config, [&query, &key], gates, options, &shape, rows)
        }
        WeightFunction::Sink(sink) => {
            let (scores, mask) = masked(dot_products(widen(selected()), widen(key), scale, &shape));
            narrow(weights_with_sink(scores, mask, sink.clone()), stored)
        }
        WeightFunction::Sigmoid => {
            let (scores, mask) = masked(dot_products(widen(selected()), widen(key), scale, &shape));
            let weights = activation::sigmoid(scores);
            narrow(
                match mask {
                    Some(mask) => {
                        let dims = weights.dims();
                        weights.mask_fill(mask.expand(dims), 0.0)
                    }
                    None => weights,
                },
                stored,
            )
        }
        WeightFunction::Differential(lambda) => {
            let [query, key] = [widen(selected()), widen(key)].map(halves);
            let scale = options
                .scale
                .unwrap_or(1.0 / (shape.d_head as f64 / 2.0).sqrt());
            let [first, second] = [0, 1].map(|half| {
                let (query, key) = (query[half].clone(), key[half].clone());
                let (scores, mask) = masked(dot_products(query, key, scale, &shape));
                weights_of(scores, mask)
            });
            narrow(
                first - second * lambda.clone().reshape([1, 1, 1, 1]),
                stored,
            )
        }
        WeightFunction::Landmarks(config) => {
            landmark_weights(&query, selected(), key, config, options, &shape)
        }
        WeightFunction::Projected(projection) => {
            projected_weights(selected(), key, projection.clone(), options, &shape)
        }
        // The last three materialise all weights.
        WeightFunction::Gated(gated) => {
            let GatedWeights { op, gates, update } = gated.as_ref();
            gated_weights(op, [query, key], gates, *update, scale, options, rows)
        }
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

/// The weights of the keys in a softmax over them and a sink, `[heads]`.
fn weights_with_sink(
    scores: Tensor<4>,
    mask: Option<Tensor<4, Bool>>,
    sink: Tensor<1>,
) -> Tensor<4> {
    let dims = scores.dims();
    let [batch, heads, rows, _] = dims;
    let sink = widen(sink).reshape([1, heads, 1, 1]);
    let sink = sink.expand([batch, heads, rows, 1]);
    let mask = mask.map(|mask| mask.expand(dims));
    let fill = |tensor: Tensor<4>, value: f32| match &mask {
        Some(mask) => tensor.mask_fill(mask.clone(), value),
        None => tensor,
    };
    let scores = fill(scores, f32::MIN);
    let max = scores.clone().max_dim(3).max_pair(sink.clone()).detach(); // [batch, heads, rows, 1]
    let exponentials = fill((scores - max.clone()).exp(), 0.0);
    let sum = exponentials.clone().sum_dim(3) + (sink - max).exp();
    exponentials / sum
}
