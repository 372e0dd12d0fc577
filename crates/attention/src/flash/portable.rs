//! Portable tiled attention: tile loops over the operations of any backend.
//!
//! ```text
//! forward, over key tiles:   s = scale · q kᵀ, modified by the options
//!                            m' = max(m, max s),  p = exp(s - m'),  a = exp(m - m')
//!                            l = a·l + Σ p,  o = a·o + p v
//!                            context = o / l,  log-sum-exp = m + ln l
//! backward, over both:       p = exp(s - m) / l,  dp = do vᵀ
//!                            ds = p (dp - rowsum(do ∘ o) + dlse)
//!                            dv += pᵀ do,  dk += scale · dsᵀ q,  dq += scale · ds k
//! ```
//!
//! Dropout multiplies `p` by 0 or `1/(1 - probability)` before it is multiplied by `v`, and `dp`
//! likewise. In the backward pass, the softcap `c·tanh(s/c)` multiplies `ds` by its derivative
//! `1 - tanh²(s/c)`.
//!
//! Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023.

#[allow(deprecated)] // Burn 0.22 deprecates NdArray and LibTorch.
pub(crate) mod additive;
mod bias_gradient;
mod call;
pub(super) mod relative_bias;
mod tensor_ops;

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Slice, TensorMetadata};

use self::bias_gradient::BiasGradient;
use self::call::{Call, SoftmaxState, TILE, TileScores};
use self::tensor_ops::{accumulate, apply_factors, cat, transpose, zero_masked};
use super::call::{InputGrads, Inputs, OutputGrads, Outputs, Program, Saved, TiledSettings, tiles};
use crate::matmul::TileOps;

pub(super) fn forward<B: TileOps>(inputs: Inputs<B>, settings: &TiledSettings) -> Outputs<B> {
    assert!(
        !matches!(settings.program, Program::Hard(_)),
        "hard attention has no tile loops: it materialises its weights where it has no kernels"
    );
    let call = Call::new(settings, &inputs);
    let [query, key, value] = [inputs.query, inputs.key, inputs.value];
    let mut outputs = [const { Vec::new() }; 3];
    for row in 0..call.plan.rows() {
        let queries = call.plan.queries(row);
        let query = call.group_heads(B::float_slice(query.clone(), &rows(&queries)));
        let mut state: Option<SoftmaxState<B>> = None;
        for tile in call.tiles(row) {
            let key = B::float_slice(key.clone(), &rows(&tile.keys));
            let value = B::float_slice(value.clone(), &rows(&tile.keys));
            let TileScores {
                scores,
                mask,
                distances,
                ..
            } = call.scores(query.clone(), key, &tile);
            let factors = call.factors(&tile, distances);
            if settings.program == Program::Sigmoid {
                let is_masked = mask.is_some();
                let weights = zero_masked::<B>(B::sigmoid(scores), mask);
                let weights = apply_factors::<B>(weights, factors);
                let context = call.weighted_sum(weights, value, is_masked);
                let mut old = state.unwrap_or_else(|| call.unnormalized(queries.len()));
                old.context = B::float_add(old.context, context);
                state = Some(old);
                continue;
            }
            let tile_max = B::float_max_dim(scores.clone(), 3); // [batch, kv_heads, group * tile, 1]
            let max = match &state {
                Some(old) => elementwise_max::<B>(old.max.clone(), tile_max),
                None => tile_max,
            };
            let weights = B::float_exp(B::float_sub(scores, max.clone()));
            let is_masked = mask.is_some();
            let weights = zero_masked::<B>(weights, mask);
            let sum = B::float_sum_dim(weights.clone(), 3);
            let weights = apply_factors::<B>(weights, factors);
            let context = call.weighted_sum(weights, value, is_masked);
            let (sum, context) = match state {
                None => (sum, context),
                Some(old) => {
                    let rescale = B::float_exp(B::float_sub(old.max, max.clone()));
                    let old_sum = B::float_mul(old.sum, rescale.clone());
                    let old_context = B::float_mul(old.context, rescale);
                    (
                        B::float_add(old_sum, sum),
                        B::float_add(old_context, context),
                    )
                }
            };
            state = Some(SoftmaxState { max, sum, context });
        }
        let state = state.unwrap_or_else(|| call.fully_masked(queries.len()));
        for (output, tensor) in outputs.iter_mut().zip(call.finish(state)) {
            output.push(call.split_heads(tensor, queries.len()));
        }
    }
    outputs.map(|tiles| cat::<B>(tiles, 2)).into()
}

pub(super) fn backward<B: TileOps>(
    saved: Saved<B>,
    output_grads: OutputGrads<B>,
    settings: &TiledSettings,
) -> InputGrads<B> {
    let call = Call::new(settings, &saved.inputs);
    let mut d_bias = call
        .bias
        .as_ref()
        .filter(|_| output_grads.needs_bias_grad)
        .map(|bias| BiasGradient::<B>::new(bias.shape().dims(), settings));
    let [query, key, value] = [saved.inputs.query, saved.inputs.key, saved.inputs.value];

    let key_tiles: Vec<Range<usize>> = tiles(settings.shape.seq_k, TILE).collect();
    let mut d_keys: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_values: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_queries = Vec::new();
    let mut d_positions = Vec::new();
    let mut d_parameter: Option<FloatTensor<B>> = None;
    for row in 0..call.plan.rows() {
        let queries = call.plan.queries(row);
        let is_one_tile = call.plan.tiles(0, row).nth(1).is_none();
        let slice = rows(&queries);
        let part =
            |tensor: &FloatTensor<B>| call.group_heads(B::float_slice(tensor.clone(), &slice));
        let query = part(&query);
        let d_context = part(&output_grads.d_context);
        let stats = part(&saved.stats); // [batch, kv_heads, group * tile, 2]
        let max = column::<B>(&stats, 0); // [batch, kv_heads, group * tile, 1]
        // At least 1, or 0 for a fully masked row, whose weights are all zero.
        let sum = B::float_clamp_min(column::<B>(&stats, 1), 0.5.into());
        let delta = B::float_sum_dim(B::float_mul(d_context.clone(), part(&saved.context)), 3);
        let d_log_sum_exp = output_grads.d_log_sum_exp.as_ref().map(part);
        let mut d_query: Option<FloatTensor<B>> = None;
        let mut d_position: Option<FloatTensor<B>> = None;
        for tile in call.tiles(row) {
            let column = tile.keys.start / TILE;
            let key = B::float_slice(key.clone(), &rows(&tile.keys));
            let value = B::float_slice(value.clone(), &rows(&tile.keys));
            let TileScores {
                scores,
                mask,
                score_grad,
                distances,
            } = call.scores(query.clone(), key.clone(), &tile);
            let is_sigmoid = settings.program == Program::Sigmoid;
            let weights = if is_sigmoid {
                B::sigmoid(scores)
            } else {
                // No weight exceeds 1, even if a recomputed score is rounded differently.
                let exponent = B::float_clamp_max(B::float_sub(scores, max.clone()), 0.0.into());
                B::float_div(B::float_exp(exponent), sum.clone())
            };
            let weights = zero_masked::<B>(weights, mask.clone()); // [batch, kv_heads, group * tile, tile]
            let weights = if is_one_tile && !is_sigmoid {
                // All weights of the row are available, so their own sum is exact. It is about 1,
                // or 0 for a fully masked row.
                let sum = B::float_sum_dim(weights.clone(), 3);
                B::float_div(weights, B::float_clamp_min(sum, 0.5.into()))
            } else {
                weights
            };
            // Masked keys and values and fully masked rows contribute nothing, even if they are
            // not finite.
            let finite = |tensor: FloatTensor<B>| match mask {
                Some(_) => call.zero_non_finite(tensor),
                None => tensor,
            };
            let (query, key, value) = (finite(query.clone()), finite(key), finite(value));
            let d_context = finite(d_context.clone());
            let factors = call.factors(&tile, distances.clone());
            let d_weights = B::f32_matmul(d_context.clone(), transpose::<B>(value));
            let d_weights = apply_factors::<B>(d_weights, factors.clone());
            let delta = if is_one_tile {
                // The same value, but rounded like `d_weights`: if only one key is visible, the
                // difference is exactly zero.
                B::float_sum_dim(B::float_mul(weights.clone(), d_weights.clone()), 3)
            } else {
                delta.clone()
            };
            let delta = match &d_log_sum_exp {
                Some(d_log_sum_exp) => B::float_sub(delta, d_log_sum_exp.clone()),
                None => delta,
            };
            if let Some(distances) = distances {
                let terms = B::float_mul(weights.clone(), d_weights.clone());
                let terms = zero_masked::<B>(B::float_mul(terms, distances), mask.clone());
                accumulate::<B>(&mut d_position, B::float_sum_dim(terms, 3));
            }
            let d_scores = if is_sigmoid {
                let slope = B::float_sub(
                    weights.clone(),
                    B::float_mul(weights.clone(), weights.clone()),
                );
                B::float_mul(slope, d_weights)
            } else {
                B::float_mul(weights.clone(), B::float_sub(d_weights, delta))
            };
            let d_scores = zero_masked::<B>(d_scores, mask.clone());
            if let Some(d_bias) = &mut d_bias {
                let by_head = call.split_heads(d_scores.clone(), queries.len());
                d_bias.add(&tile, by_head);
            }
            let d_dots = match score_grad {
                Some(grad) => zero_masked::<B>(B::float_mul(d_scores, grad), mask),
                None => d_scores,
            };
            let d_dots = B::float_mul_scalar(d_dots, settings.scale.into());
            let weights = apply_factors::<B>(weights, factors);
            accumulate::<B>(
                &mut d_values[column],
                B::f32_matmul(transpose::<B>(weights), d_context),
            );
            let [query_term, key_term] = if settings.program == Program::Additive {
                let inputs = [query, key, call.vectors(queries.len())];
                let [query, key, vector] = B::mlp_scores_backward(inputs, d_dots);
                // [1, heads, queries, d_head]
                let by_head = call.split_vectors(vector, queries.len());
                accumulate::<B>(&mut d_parameter, B::float_sum_dim(by_head, 2));
                [query, key]
            } else {
                let key_term = B::f32_matmul(transpose::<B>(d_dots.clone()), query);
                [B::f32_matmul(d_dots, key), key_term]
            };
            accumulate::<B>(&mut d_keys[column], key_term);
            accumulate::<B>(&mut d_query, query_term);
        }
        if let Program::Gaussian { window } = settings.program {
            let d_position = d_position.unwrap_or_else(|| call.zeros_like(&max));
            let factor = 4.0 / (window * window);
            let d_position = B::float_mul_scalar(d_position, factor.into());
            d_positions.push(call.split_heads(d_position, queries.len()));
        }
        let d_query = d_query.unwrap_or_else(|| call.zeros_like(&query));
        d_queries.push(call.split_heads(d_query, queries.len()));
    }
    let concat = |tiles: Vec<Option<FloatTensor<B>>>, like: FloatTensor<B>| {
        let filled = tiles.into_iter().zip(&key_tiles).map(|(tile, keys)| {
            // Keys that are masked for every query have a zero gradient.
            tile.unwrap_or_else(|| call.zeros_like(&B::float_slice(like.clone(), &rows(keys))))
        });
        cat::<B>(filled.collect(), 2)
    };
    InputGrads {
        qkv: [
            cat::<B>(d_queries, 2),
            concat(d_keys, key),
            concat(d_values, value),
        ],
        bias: d_bias.map(|d_bias| d_bias.finish(&call.device)),
        parameter: call.parameter.as_ref().map(|parameter| {
            if d_positions.is_empty() {
                d_parameter.unwrap_or_else(|| call.zeros_like(parameter))
            } else {
                cat::<B>(d_positions, 2)
            }
        }),
    }
}

/// The slice of rows `range` of a `[_, _, rows, _]` tensor.
fn rows(range: &Range<usize>) -> [Slice; 3] {
    [Slice::full(), Slice::full(), Slice::from(range.clone())]
}

/// Column `index` of a `[_, _, _, columns]` tensor.
fn column<B: Backend>(tensor: &FloatTensor<B>, index: usize) -> FloatTensor<B> {
    let all = Slice::full();
    B::float_slice(
        tensor.clone(),
        &[all, all, all, Slice::from(index..index + 1)],
    )
}

fn elementwise_max<B: Backend>(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
    B::float_max_dim(B::float_cat(vec![a, b], 3), 3)
}
