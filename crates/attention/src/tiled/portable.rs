//! Tiled attention by the operations every backend has.
//!
//! ```text
//! forward, over key tiles:   s = scale · q kᵀ, and what the options add
//!                            m' = max(m, max s),  p = exp(s - m'),  a = exp(m - m')
//!                            l = a·l + Σ p,  o = a·o + p v
//!                            context = o / l,  log-sum-exp = m + ln l
//! backward, over both:       p = exp(s - lse),  dp = do vᵀ
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

use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};
use burn::tensor::FloatDType;

use self::bias_gradient::BiasGradient;
use super::ops::{Arrived, Bias, InputGradients, MoreHidden, Saved, TiledSettings};
use crate::pattern::rule::place;
use crate::pattern::{Examples, TilePlan, kept};

/// Queries and keys in a tile: large enough that a matmul of it is worth a call,
/// small enough that the scores of a tile (256 KB a head) are cheap to hold.
const TILE: usize = 256;

/// Stands for minus infinity in scores: infinities are not part of what WGSL
/// promises, and two of them make a NaN.
const LOWEST: f32 = -1e30;

pub(super) fn forward<B: Backend>(
    query: FloatTensor<B>,
    key: FloatTensor<B>,
    value: FloatTensor<B>,
    hidden: MoreHidden<B>,
    bias: Bias<B>,
    settings: &TiledSettings,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let call = Call::<B>::new(settings, &query, hidden, bias);
    let mut contexts = Vec::new();
    let mut sums_of_exp = Vec::new();
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
            // A bias may be minus infinity, and a row of it must not meet itself.
            let most_here = B::float_max_dim(scores.clone(), 3); // [batch, kv_heads, group * tile, 1]
            let most_here = B::float_clamp_min(most_here, LOWEST.into());
            let most = match &state {
                Some((most, ..)) => larger::<B>(most.clone(), most_here),
                None => most_here,
            };
            let weights = B::float_exp(B::float_sub(scores, most.clone()));
            let weights = zero::<B>(weights, hidden);
            let sum = B::float_sum_dim(weights.clone(), 3);
            let weights = call.drop_some(weights, call.factors(&tile));
            let context = B::float_matmul(weights, value); // [batch, kv_heads, group * tile, d_value]
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
        let (context, log_sum_exp) = match state {
            Some((most, sum, context)) => call.finish(most, sum, context),
            None => call.blind(queries.len()),
        };
        contexts.push(call.by_head(context, queries.len()));
        sums_of_exp.push(call.by_head(log_sum_exp, queries.len()));
    }
    (cat::<B>(contexts, 2), cat::<B>(sums_of_exp, 2))
}

pub(super) fn backward<B: Backend>(
    saved: Saved<B>,
    arrived: Arrived<B>,
    settings: &TiledSettings,
) -> InputGradients<B> {
    let Saved {
        query,
        key,
        value,
        hidden,
        bias,
        context,
        log_sum_exp,
    } = saved;
    let Arrived {
        d_context,
        d_log_sum_exp,
        wants_bias,
    } = arrived;
    let mut d_bias = bias
        .as_ref()
        .filter(|_| wants_bias)
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
        let d_context = part(&d_context);
        let log_sum_exp = part(&log_sum_exp); // [batch, kv_heads, group * tile, 1]
        let mean = B::float_sum_dim(B::float_mul(d_context.clone(), part(&context)), 3);
        let d_log_sum_exp = d_log_sum_exp.as_ref().map(part);
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
            let weights = B::float_exp(B::float_sub(scores, log_sum_exp.clone()));
            let weights = zero::<B>(weights, hidden); // [batch, kv_heads, group * tile, tile]
            let weights = if is_one_tile {
                // A log-sum-exp near 1000 is known to 1e-4 only; with all weights at
                // hand, their own sum is exact. It is about 1, or 0 if nothing is seen.
                let sum = B::float_sum_dim(weights.clone(), 3);
                B::float_div(weights, B::float_clamp_min(sum, 0.5.into()))
            } else {
                weights
            };
            let factors = call.factors(&tile);
            let d_weights = B::float_matmul(d_context.clone(), turned::<B>(value));
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
            if let Some(d_bias) = &mut d_bias {
                let by_head = call.full(d_scores.clone(), &tile);
                d_bias.add(row, column, by_head);
            }
            let d_products = match slope {
                Some(slope) => B::float_mul(d_scores, slope),
                None => d_scores,
            };
            let d_products = B::float_mul_scalar(d_products, settings.scale.into());
            let weights = call.drop_some(weights, factors);
            add_to::<B>(
                &mut d_values[column],
                B::float_matmul(turned::<B>(weights), d_context.clone()),
            );
            add_to::<B>(
                &mut d_keys[column],
                B::float_matmul(turned::<B>(d_products.clone()), query.clone()),
            );
            add_to::<B>(&mut d_query, B::float_matmul(d_products, key));
        }
        let d_query = d_query.unwrap_or_else(|| B::float_mul_scalar(query, 0.0.into()));
        d_queries.push(call.by_head(d_query, queries.len()));
    }
    let whole = |tiles: Vec<Option<FloatTensor<B>>>, like: FloatTensor<B>| {
        let filled = tiles.into_iter().zip(&key_tiles).map(|(tile, keys)| {
            // Keys that nobody sees have no gradient.
            tile.unwrap_or_else(|| {
                B::float_mul_scalar(B::float_slice(like.clone(), &rows(keys)), 0.0.into())
            })
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

/// Some queries against some keys.
struct Tile {
    queries: Range<usize>,
    keys: Range<usize>,
    /// Nothing in it is hidden by the rule.
    is_whole: bool,
}

/// The scores of a tile, all `[batch, kv_heads, group * tile, tile]`.
struct Scored<B: Backend> {
    /// The lowest where hidden.
    scores: FloatTensor<B>,
    hidden: Option<BoolTensor<B>>,
    /// What a gradient is multiplied by on its way back through the softcap.
    slope: Option<FloatTensor<B>>,
}

/// What holds for every tile of a call.
struct Call<'a, B: Backend> {
    settings: &'a TiledSettings,
    plan: Arc<TilePlan>,
    hidden: Option<BoolTensor<B>>,
    bias: Bias<B>,
    device: B::Device,
}

impl<'a, B: Backend> Call<'a, B> {
    fn new(
        settings: &'a TiledSettings,
        query: &FloatTensor<B>,
        hidden: MoreHidden<B>,
        bias: Bias<B>,
    ) -> Self {
        Self {
            settings,
            // All examples go through a tile together.
            plan: kept(
                &settings.rule,
                &settings.shape,
                [TILE, TILE],
                Examples::Together,
            ),
            hidden: match hidden {
                MoreHidden::Nothing => None,
                MoreHidden::Where(hidden) => Some(hidden),
            },
            bias,
            device: query.device(),
        }
    }

    /// `[batch, heads, tile, d]` as `[batch, kv_heads, group * tile, d]`: heads that
    /// share a key and value head are one longer list of queries to it.
    fn grouped(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [_, _, tile, width] = tensor.shape().dims();
        let grouped = [shape.batch, shape.kv_heads, shape.group() * tile, width];
        B::float_reshape(tensor, Shape::from(grouped))
    }

    /// And back again.
    fn by_head(&self, tensor: FloatTensor<B>, tile: usize) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [.., width] = tensor.shape().dims::<4>();
        B::float_reshape(tensor, Shape::from([shape.batch, shape.heads, tile, width]))
    }

    /// Something of a tile by head: `[batch, heads, tile, tile]`.
    fn full(&self, tensor: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
        B::float_reshape(tensor, self.full_shape(tile))
    }

    fn full_shape(&self, tile: &Tile) -> Shape {
        let shape = &self.settings.shape;
        Shape::from([
            shape.batch,
            shape.heads,
            tile.queries.len(),
            tile.keys.len(),
        ])
    }

    /// Something for each place of a tile, where one may stand for all, in the shape
    /// of its scores.
    fn like_scores(&self, tensor: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
        self.grouped(B::float_expand(tensor, self.full_shape(tile)))
    }

    fn scores(&self, query: FloatTensor<B>, key: FloatTensor<B>, tile: &Tile) -> Scored<B> {
        let settings = self.settings;
        let products = B::float_matmul(query, turned::<B>(key)); // [batch, kv_heads, group * tile, tile]
        let products = B::float_mul_scalar(products, settings.scale.into());
        let (scores, slope) = match settings.softcap {
            None => (products, None),
            Some(cap) => {
                let bent = B::float_tanh(B::float_div_scalar(products, cap.into()));
                let square = B::float_mul(bent.clone(), bent.clone());
                let slope = B::float_add_scalar(B::float_neg(square), 1.0.into());
                (B::float_mul_scalar(bent, cap.into()), Some(slope))
            }
        };
        let scores = match &settings.alibi {
            None => scores,
            Some(slopes) => B::float_sub(scores, self.falling(slopes, tile)),
        };
        let scores = match &self.bias {
            Bias::Nothing => scores,
            Bias::Added(bias) => {
                let slices = spans(bias.shape().dims(), tile);
                let bias = B::float_slice(bias.clone(), &slices);
                B::float_add(scores, self.like_scores(bias, tile))
            }
        };
        let hidden = self.hidden(tile, scores.shape());
        let scores = match &hidden {
            Some(hidden) => B::float_mask_fill(scores, hidden.clone(), LOWEST.into()),
            None => scores,
        };
        Scored {
            scores,
            hidden,
            slope,
        }
    }

    /// What ALiBi takes off the scores of a tile.
    fn falling(&self, slopes: &[f32], tile: &Tile) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        let distances: Vec<f32> = tile
            .queries
            .clone()
            .flat_map(|query| {
                let own = place(shape, query);
                let keys = tile.keys.clone();
                keys.map(move |key| own.abs_diff(key as i64) as f32)
            })
            .collect();
        let distances = self.tensor(distances, [1, 1, tile.queries.len(), tile.keys.len()]);
        let slopes = self.tensor(slopes.to_vec(), [1, shape.heads, 1, 1]);
        B::float_mul(
            self.like_scores(distances, tile),
            self.like_scores(slopes, tile),
        )
    }

    /// What dropout multiplies the weights of a tile by.
    fn factors(&self, tile: &Tile) -> Option<FloatTensor<B>> {
        let dropout = self.settings.dropout?;
        let shape = &self.settings.shape;
        let dims = [
            shape.batch,
            shape.heads,
            tile.queries.len(),
            tile.keys.len(),
        ];
        let mut factors = Vec::with_capacity(dims.iter().product());
        for example in 0..shape.batch {
            for head in 0..shape.heads {
                for query in tile.queries.clone() {
                    dropout.write_factors([example, head, query], tile.keys.clone(), &mut factors);
                }
            }
        }
        Some(self.grouped(self.tensor(factors, dims)))
    }

    fn drop_some(
        &self,
        weights: FloatTensor<B>,
        factors: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match factors {
            Some(factors) => B::float_mul(weights, factors),
            None => weights,
        }
    }

    fn tensor(&self, numbers: Vec<f32>, dims: [usize; 4]) -> FloatTensor<B> {
        B::float_from_data(TensorData::new(numbers, dims), &self.device)
    }

    /// What is hidden in a tile, in the shape of its scores.
    fn hidden(&self, tile: &Tile, scores: Shape) -> Option<BoolTensor<B>> {
        let shape = &self.settings.shape;
        let full = self.full_shape(tile);
        let by_rule = (!tile.is_whole).then(|| {
            let rule = &self.settings.rule;
            let examples = rule.different_examples(shape);
            let mut hidden = Vec::new();
            for example in 0..examples {
                let places = [tile.queries.clone(), tile.keys.clone()];
                rule.write_hidden(shape, example, places, &mut hidden);
            }
            let dims = [examples, 1, tile.queries.len(), tile.keys.len()];
            let dtype = get_or_init_device_settings::<B>(&self.device).bool_dtype;
            let data = TensorData::new(hidden, dims).convert_dtype(dtype.into());
            B::bool_expand(B::bool_from_data(data, &self.device), full.clone())
        });
        let by_mask = self.hidden.clone().map(|hidden| {
            let slices = spans(hidden.shape().dims(), tile);
            B::bool_expand(B::bool_slice(hidden, &slices), full.clone())
        });
        let hidden = match (by_rule, by_mask) {
            (Some(a), Some(b)) => B::bool_or(a, b),
            (a, b) => a.or(b)?,
        };
        Some(B::bool_reshape(hidden, scores))
    }

    /// Context and log-sum-exp from the running softmax; zero and the lowest for a
    /// query that saw nothing.
    fn finish(
        &self,
        most: FloatTensor<B>,
        sum: FloatTensor<B>,
        context: FloatTensor<B>,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        // At least 1, from the largest score itself, unless nothing was seen; then
        // the context is zero already, and any positive number keeps it.
        let sum = B::float_clamp_min(sum, 0.5.into());
        let log_sum_exp = B::float_add(most, B::float_log(sum.clone()));
        (B::float_div(context, sum), log_sum_exp)
    }

    /// A tile of queries that see nothing at all.
    fn blind(&self, tile: usize) -> (FloatTensor<B>, FloatTensor<B>) {
        let shape = &self.settings.shape;
        let rows = shape.group() * tile;
        let of = |width| Shape::from([shape.batch, shape.kv_heads, rows, width]);
        let context = B::float_zeros(of(shape.d_value), &self.device, FloatDType::F32);
        let lowest = B::float_full(of(1), LOWEST.into(), &self.device, FloatDType::F32);
        (context, lowest)
    }
}

/// The part of a `[batch, heads, seq_q, seq_k]` tensor, any of them 1 to stand for all,
/// that belongs to a tile.
fn spans([batch, heads, seq_q, seq_k]: [usize; 4], tile: &Tile) -> [Slice; 4] {
    let span = |size: usize, range: &Range<usize>| {
        if size == 1 { 0..1 } else { range.clone() }
    };
    [
        Slice::from(0..batch),
        Slice::from(0..heads),
        Slice::from(span(seq_q, &tile.queries)),
        Slice::from(span(seq_k, &tile.keys)),
    ]
}

fn zero<B: Backend>(weights: FloatTensor<B>, hidden: Option<BoolTensor<B>>) -> FloatTensor<B> {
    match hidden {
        Some(hidden) => B::float_mask_fill(weights, hidden, 0.0.into()),
        None => weights,
    }
}

fn tiles(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(TILE)
        .map(move |start| start..length.min(start + TILE))
}

/// The slice of rows `range` of a `[_, _, rows, _]` tensor.
fn rows(range: &Range<usize>) -> [Slice; 3] {
    [Slice::full(), Slice::full(), Slice::from(range.clone())]
}

fn turned<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(tensor, 2, 3)
}

fn larger<B: Backend>(a: FloatTensor<B>, b: FloatTensor<B>) -> FloatTensor<B> {
    B::float_max_dim(B::float_cat(vec![a, b], 3), 3)
}

fn add_to<B: Backend>(sum: &mut Option<FloatTensor<B>>, more: FloatTensor<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => B::float_add(sum, more),
        None => more,
    });
}

fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, dim),
    }
}
