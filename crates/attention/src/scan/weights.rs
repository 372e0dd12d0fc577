//! Attention weights of linear attention, materialised for chosen queries.

use burn::tensor::{Tensor, TensorData};

use super::features::{FeatureMap, first_positions};
use super::key_mask::KeyMask;
use super::{grouped_matmul, normalizer, reject_score_options};
use crate::pattern::rule::query_position;
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape};

/// The weights of the queries `rows` in [`linear`](crate::mechanisms::linear::linear()) attention,
/// `[batch, heads, rows, seq_k]`. `query` has only these rows.
pub(crate) fn linear_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    features: &FeatureMap,
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let op = "linear attention";
    reject_score_options(op, options);
    let features = features.prepare(op, &query, shape.seq_q.max(shape.seq_k));
    let key_mask = KeyMask::from_pattern(op, &options.pattern, shape, &query.device());
    let stored = query.dtype();
    let [query, key] = [query, key].map(widen);
    let scale = features.scale(options.scale, shape.default_scale());
    let [first_query, first_key] = first_positions(shape);
    let positions = rows.iter().map(|&row| first_query + row);
    let query = features.map_queries(query, scale, positions);
    let key = features.map_keys(key, scale, &key_mask, first_key);
    let scores = grouped_matmul(query, key.swap_dims(2, 3)); // [batch, heads, rows, seq_k]
    let scores = mask(scores, op, options, shape, rows);
    let total = scores.clone().sum_dim(3);
    narrow(scores * normalizer(total), stored)
}

/// The unnormalised weights of the queries `rows` in [`retention`](crate::mechanisms::retention::retention()),
/// `[batch, heads, rows, seq_k]`. `query` has only these rows.
pub(crate) fn retention_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    decays: &[f64],
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let op = "retention";
    reject_score_options(op, options);
    let key_mask = KeyMask::from_pattern(op, &options.pattern, shape, &query.device());
    key_mask.check_causal(op, &options.pattern);
    let stored = query.dtype();
    let [query, key] = [query, key].map(widen);
    let query = query.mul_scalar(options.scale.unwrap_or(shape.default_scale()));
    let scores = grouped_matmul(query, key_mask.clear(key).swap_dims(2, 3)); // [batch, heads, rows, seq_k]

    let mut powers = Vec::with_capacity(shape.heads * rows.len() * shape.seq_k);
    for head in 0..shape.heads {
        let decay = decays[head / shape.group()];
        for &row in rows {
            let position = query_position(shape, row);
            powers.extend((0..shape.seq_k as i64).map(|key| {
                // Keys after the query are masked below.
                decay.powi((position - key).max(0) as i32) as f32
            }));
        }
    }
    let powers = TensorData::new(powers, [1, shape.heads, rows.len(), shape.seq_k]);
    let powers = Tensor::from_data(powers, (&scores.device(), scores.dtype()));
    narrow(mask(scores * powers, op, options, shape, rows), stored)
}

/// Scores with zeros for masked keys.
fn mask(
    scores: Tensor<4>,
    op: &str,
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let pattern = &options.pattern;
    match pattern.dense_mask_rows(op, shape, rows, &scores.device()) {
        Some(mask) => {
            let dims = scores.dims();
            scores.mask_fill(mask.expand(dims), 0.0)
        }
        None => scores,
    }
}
