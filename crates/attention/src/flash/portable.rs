//! Tiled attention by the operations every backend has.
//!
//! ```text
//! forward, over key tiles:   s = scale · q kᵀ, and what the options add
//!                            m' = max(m, max s),  p = exp(s - m'),  a = exp(m - m')
//!                            l = a·l + Σ p,  o = a·o + p v
//!                            context = o / l,  log-sum-exp = m + ln l
//! backward, over both:       p = exp(s - m) / l,  dp = do vᵀ
//!                            ds = p (dp - rowsum(do ∘ o) + dlse)
//!                            dv += pᵀ do,  dk += scale · dsᵀ q,  dq += scale · ds k
//! ```
//!
//! Dropout multiplies `p` by 0 or `1/(1 - probability)` where it meets `v`, and `dp`
//! likewise. The softcap `c·tanh(s/c)` multiplies `ds` by its slope `1 - tanh²(s/c)` on
//! the way to `q` and `k`.
//!
//! Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023.

mod bias_gradient;
mod call;

use std::ops::Range;

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, Slice, TensorMetadata};

use self::bias_gradient::BiasGradient;
use self::call::{Call, Scored, TILE, Tile, add_to, cat, tiles, transposed, zero};
use super::call::{Arrived, InputGradients, Inputs, Outputs, Saved, TiledSettings};

pub(super) fn forward<B: Backend>(inputs: Inputs<B>, settings: &TiledSettings) -> Outputs<B> {
    let Inputs {
        query,
        key,
        value,
        hidden,
        bias,
    } = inputs;
    let call = Call::<B>::new(settings, &query, hidden, bias);
    let mut contexts = Vec::new();
    let (mut sums_of_exp, mut all_stats) = (Vec::new(), Vec::new());
    for row in 0..call.plan.rows() {
        let queries = call.plan.queries(row);
        let query = call.grouped(B::float_slice(query.clone(), &rows(&queries)));
        let mut state: Option<(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>)> = None;
        for (keys, is_whole) in call.plan.tiles(0, row) {
            let tile = Tile {
                queries: queries.clone(),
                keys,
                is_whole,
            };
            let key = B::float_slice(key.clone(), &rows(&tile.keys));
            let value = B::float_slice(value.clone(), &rows(&tile.keys));
            let Scored { scores, hidden, .. } = call.scores(query.clone(), key, &tile);
            let most_here = B::float_max_dim(scores.clone(), 3); // [batch, kv_heads, group * tile, 1]
            let most = match &state {
                Some((most, ..)) => larger::<B>(most.clone(), most_here),
                None => most_here,
            };
            let weights = B::float_exp(B::float_sub(scores, most.clone()));
            let hides = hidden.is_some();
            let weights = zero::<B>(weights, hidden);
            let sum = B::float_sum_dim(weights.clone(), 3);
            let weights = call.drop_some(weights, call.factors(&tile));
            let context = call.weighted_sum(weights, value, hides); // [batch, kv_heads, group * tile, d_value]
            state = Some(match state {
                None => (most, sum, context),
                Some((before, sum_before, context_before)) => {
                    let shrink = B::float_exp(B::float_sub(before, most.clone()));
                    let sum = B::float_add(B::float_mul(sum_before, shrink.clone()), sum);
                    let context = B::float_add(B::float_mul(context_before, shrink), context);
                    (most, sum, context)
                }
            });
        }
        let (context, log_sum_exp, stats) = match state {
            Some((most, sum, context)) => call.finish(most, sum, context),
            None => call.fully_masked(queries.len()),
        };
        contexts.push(call.by_head(context, queries.len()));
        sums_of_exp.push(call.by_head(log_sum_exp, queries.len()));
        all_stats.push(call.by_head(stats, queries.len()));
    }
    (
        cat::<B>(contexts, 2),
        cat::<B>(sums_of_exp, 2),
        cat::<B>(all_stats, 2),
    )
}

pub(super) fn backward<B: Backend>(
    saved: Saved<B>,
    arrived: Arrived<B>,
    settings: &TiledSettings,
) -> InputGradients<B> {
    let Inputs {
        query,
        key,
        value,
        hidden,
        bias,
    } = saved.inputs;
    let mut d_bias = bias
        .as_ref()
        .filter(|_| arrived.wants_bias)
        .map(|bias| BiasGradient::<B>::new(bias.shape().dims()));
    let call = Call::<B>::new(settings, &query, hidden, bias);

    let key_tiles: Vec<Range<usize>> = tiles(settings.shape.seq_k).collect();
    let mut d_keys: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_values: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_queries = Vec::new();
    for row in 0..call.plan.rows() {
        let queries = call.plan.queries(row);
        let is_one_tile = call.plan.tiles(0, row).nth(1).is_none();
        let at = rows(&queries);
        let part = |tensor: &FloatTensor<B>| call.grouped(B::float_slice(tensor.clone(), &at));
        let query = part(&query);
        let d_context = part(&arrived.d_context);
        let stats = part(&saved.stats); // [batch, kv_heads, group * tile, 2]
        let most = column::<B>(&stats, 0); // [batch, kv_heads, group * tile, 1]
        // At least 1, or 0 if the row is fully masked, and all its weights are zero already.
        let sum = B::float_clamp_min(column::<B>(&stats, 1), 0.5.into());
        let mean = B::float_sum_dim(B::float_mul(d_context.clone(), part(&saved.context)), 3);
        let d_log_sum_exp = arrived.d_log_sum_exp.as_ref().map(part);
        let mut d_query: Option<FloatTensor<B>> = None;
        for (keys, is_whole) in call.plan.tiles(0, row) {
            let column = keys.start / TILE;
            let tile = Tile {
                queries: queries.clone(),
                keys,
                is_whole,
            };
            let key = B::float_slice(key.clone(), &rows(&tile.keys));
            let value = B::float_slice(value.clone(), &rows(&tile.keys));
            let Scored {
                scores,
                hidden,
                slope,
            } = call.scores(query.clone(), key.clone(), &tile);
            // No weight exceeds 1, even if a score were rounded differently this time.
            let below = B::float_clamp_max(B::float_sub(scores, most.clone()), 0.0.into());
            let weights = B::float_div(B::float_exp(below), sum.clone());
            let weights = zero::<B>(weights, hidden.clone()); // [batch, kv_heads, group * tile, tile]
            let weights = if is_one_tile {
                // With all weights at hand, their own sum is exact. It is about 1, or 0 if the
                // row is fully masked.
                let sum = B::float_sum_dim(weights.clone(), 3);
                B::float_div(weights, B::float_clamp_min(sum, 0.5.into()))
            } else {
                weights
            };
            // Hidden keys, values and fully masked rows contribute nothing, whatever they hold.
            let finite = |tensor: FloatTensor<B>| match hidden {
                Some(_) => call.finite(tensor),
                None => tensor,
            };
            let (query, key, value) = (finite(query.clone()), finite(key), finite(value));
            let d_context = finite(d_context.clone());
            let factors = call.factors(&tile);
            let d_weights = B::float_matmul(d_context.clone(), transposed::<B>(value));
            let d_weights = call.drop_some(d_weights, factors.clone());
            let mean = if is_one_tile {
                // The same number, rounded like what it is taken off from: where a
                // query looks at one key alone, nothing is left over.
                B::float_sum_dim(B::float_mul(weights.clone(), d_weights.clone()), 3)
            } else {
                mean.clone()
            };
            let mean = match &d_log_sum_exp {
                Some(d_log_sum_exp) => B::float_sub(mean, d_log_sum_exp.clone()),
                None => mean,
            };
            let d_scores = B::float_mul(weights.clone(), B::float_sub(d_weights, mean));
            let d_scores = zero::<B>(d_scores, hidden.clone());
            if let Some(d_bias) = &mut d_bias {
                let by_head = call.full(d_scores.clone(), &tile);
                d_bias.add(row, column, by_head);
            }
            let d_products = match slope {
                Some(slope) => zero::<B>(B::float_mul(d_scores, slope), hidden),
                None => d_scores,
            };
            let d_products = B::float_mul_scalar(d_products, settings.scale.into());
            let weights = call.drop_some(weights, factors);
            add_to::<B>(
                &mut d_values[column],
                B::float_matmul(transposed::<B>(weights), d_context),
            );
            add_to::<B>(
                &mut d_keys[column],
                B::float_matmul(transposed::<B>(d_products.clone()), query),
            );
            add_to::<B>(&mut d_query, B::float_matmul(d_products, key));
        }
        let d_query = d_query.unwrap_or_else(|| call.zeros_like(&query));
        d_queries.push(call.by_head(d_query, queries.len()));
    }
    let whole = |tiles: Vec<Option<FloatTensor<B>>>, like: FloatTensor<B>| {
        let filled = tiles.into_iter().zip(&key_tiles).map(|(tile, keys)| {
            // Keys that nobody sees have no gradient.
            tile.unwrap_or_else(|| call.zeros_like(&B::float_slice(like.clone(), &rows(keys))))
        });
        cat::<B>(filled.collect(), 2)
    };
    InputGradients {
        query: cat::<B>(d_queries, 2),
        key: whole(d_keys, key),
        value: whole(d_values, value),
        bias: d_bias.map(|d_bias| d_bias.whole(&call.device)),
    }
}

/// The slice of rows `range` of a `[_, _, rows, _]` tensor.
fn rows(range: &Range<usize>) -> [Slice; 3] {
    [Slice::full(), Slice::full(), Slice::from(range.clone())]
}

/// Column `at` of a `[_, _, _, columns]` tensor.
fn column<B: Backend>(tensor: &FloatTensor<B>, at: usize) -> FloatTensor<B> {
    let all = Slice::full();
    B::float_slice(tensor.clone(), &[all, all, all, Slice::from(at..at + 1)])
}

fn larger<B: Backend>(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
    B::float_max_dim(B::float_cat(vec![a, b], 3), 3)
}
