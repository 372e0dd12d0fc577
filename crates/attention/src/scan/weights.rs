//! The weights that are never written out, for some of the queries.

use burn::tensor::{Tensor, TensorData};

use super::features::FeatureMap;
use super::sight::Sight;
use super::{read_out, refuse_scores, share_of};
use crate::pattern::rule::place;
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionShape};

/// How much each of the queries `rows` takes of each key in [`linear`](super::linear)
/// attention: `[batch, heads, rows, seq_k]`. The query has these rows alone.
pub(crate) fn linear_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    features: &FeatureMap,
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let op = "linear attention";
    refuse_scores(op, options);
    let features = features.ready(op, &query);
    let sight = Sight::of(op, &options.pattern, shape, &query.device());
    let stored = query.dtype();
    let [query, key] = [query, key].map(widen);
    let scale = features.scale(options.scale, shape);
    let query = features.of_queries(query, scale);
    let key = features.of_keys(key, scale, &sight);
    let products = read_out(query, key.swap_dims(2, 3)); // [batch, heads, rows, seq_k]
    let products = seen(products, op, options, shape, rows);
    let total = products.clone().sum_dim(3);
    narrow(products * share_of(total), stored)
}

/// What each of the queries `rows` multiplies each value by in
/// [`retention`](super::retention()), which sums to anything: `[batch, heads, rows, seq_k]`.
/// The query has these rows alone.
pub(crate) fn retention_weights(
    query: Tensor<4>,
    key: Tensor<4>,
    decays: &[f64],
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let op = "retention";
    refuse_scores(op, options);
    let sight = Sight::of(op, &options.pattern, shape, &query.device());
    sight.check_causal(op, &options.pattern);
    let stored = query.dtype();
    let [query, key] = [query, key].map(widen);
    let query = query.mul_scalar(options.scale.unwrap_or(shape.default_scale()));
    let products = read_out(query, sight.clear(key).swap_dims(2, 3)); // [batch, heads, rows, seq_k]

    let mut fading = Vec::with_capacity(shape.heads * rows.len() * shape.seq_k);
    for head in 0..shape.heads {
        let decay = decays[head / shape.group()];
        for &row in rows {
            let own = place(shape, row);
            fading.extend((0..shape.seq_k as i64).map(|key| {
                // What is ahead is hidden below.
                decay.powi((own - key).max(0) as i32) as f32
            }));
        }
    }
    let fading = TensorData::new(fading, [1, shape.heads, rows.len(), shape.seq_k]);
    let fading = Tensor::from_data(fading, (&products.device(), products.dtype()));
    narrow(seen(products * fading, op, options, shape, rows), stored)
}

/// Products with zeros for what the queries do not see.
fn seen(
    products: Tensor<4>,
    op: &str,
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let pattern = &options.pattern;
    match pattern.hidden_from(op, shape, rows, &products.device()) {
        Some(hidden) => {
            let dims = products.dims();
            products.mask_fill(hidden.expand(dims), 0.0)
        }
        None => products,
    }
}
