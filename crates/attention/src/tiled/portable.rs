//! Tiled attention by the operations every backend has.
//!
//! ```text
//! forward, over key tiles:   s = scale · q kᵀ
//!                            m' = max(m, max s),  p = exp(s - m'),  a = exp(m - m')
//!                            l = a·l + Σ p,  o = a·o + p v
//!                            context = o / l,  log-sum-exp = m + ln l
//! backward, over both:       p = exp(s - lse),  dp = do vᵀ
//!                            ds = p (dp - rowsum(do ∘ o) + dlse) · scale
//!                            dv += pᵀ do,  dk += dsᵀ q,  dq += ds k
//! ```
//!
//! Dao, [FlashAttention-2](https://arxiv.org/abs/2307.08691), 2023.

use std::ops::Range;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};
use burn::tensor::FloatDType;

use super::ops::{InputGradients, MoreHidden, Saved, TiledSettings};
use super::sight::Sight;
use crate::AttentionShape;

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
    settings: &TiledSettings,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let call = Call::<B>::new(settings, &query, hidden);
    let AttentionShape { seq_q, seq_k, .. } = settings.shape;
    let mut contexts = Vec::new();
    let mut sums_of_exp = Vec::new();
    for queries in tiles(seq_q) {
        let query = call.grouped(B::float_slice(query.clone(), &rows(&queries)));
        let mut state: Option<(FloatTensor<B>, FloatTensor<B>, FloatTensor<B>)> = None;
        for keys in tiles(seq_k) {
            let sight = call.sight(&queries, &keys);
            if sight == Sight::Nothing {
                continue;
            }
            let key = B::float_slice(key.clone(), &rows(&keys));
            let value = B::float_slice(value.clone(), &rows(&keys));
            let (scores, hidden) = call.scores(query.clone(), key, &queries, &keys, sight);
            let most_here = B::float_max_dim(scores.clone(), 3); // [batch, kv_heads, group * tile, 1]
            let most = match &state {
                Some((most, ..)) => larger::<B>(most.clone(), most_here),
                None => most_here,
            };
            let weights = B::float_exp(B::float_sub(scores, most.clone()));
            let weights = call.zero(weights, hidden);
            let sum = B::float_sum_dim(weights.clone(), 3);
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
    (cat::<B>(contexts), cat::<B>(sums_of_exp))
}

pub(super) fn backward<B: Backend>(
    saved: Saved<B>,
    d_context: FloatTensor<B>,
    d_log_sum_exp: Option<FloatTensor<B>>,
    settings: &TiledSettings,
) -> InputGradients<B> {
    let Saved {
        query,
        key,
        value,
        hidden,
        context,
        log_sum_exp,
    } = saved;
    let call = Call::<B>::new(settings, &query, hidden);
    let AttentionShape { seq_q, seq_k, .. } = settings.shape;

    let key_tiles: Vec<Range<usize>> = tiles(seq_k).collect();
    let mut d_keys: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_values: Vec<Option<FloatTensor<B>>> = vec![None; key_tiles.len()];
    let mut d_queries = Vec::new();
    let is_one_tile = key_tiles.len() == 1;
    for queries in tiles(seq_q) {
        let at = rows(&queries);
        let part = |tensor: &FloatTensor<B>| call.grouped(B::float_slice(tensor.clone(), &at));
        let query = part(&query);
        let d_context = part(&d_context);
        let log_sum_exp = part(&log_sum_exp); // [batch, kv_heads, group * tile, 1]
        let mean = B::float_sum_dim(B::float_mul(d_context.clone(), part(&context)), 3);
        let d_log_sum_exp = d_log_sum_exp.as_ref().map(part);
        let mut d_query: Option<FloatTensor<B>> = None;
        for (tile, keys) in key_tiles.iter().enumerate() {
            let sight = call.sight(&queries, keys);
            if sight == Sight::Nothing {
                continue;
            }
            let key = B::float_slice(key.clone(), &rows(keys));
            let value = B::float_slice(value.clone(), &rows(keys));
            let (scores, hidden) = call.scores(query.clone(), key.clone(), &queries, keys, sight);
            let weights = B::float_exp(B::float_sub(scores, log_sum_exp.clone()));
            let weights = call.zero(weights, hidden); // [batch, kv_heads, group * tile, tile]
            let weights = if is_one_tile {
                // A log-sum-exp near 1000 is known to 1e-4 only; with all weights at
                // hand, their own sum is exact. It is about 1, or 0 if nothing is seen.
                let sum = B::float_sum_dim(weights.clone(), 3);
                B::float_div(weights, B::float_clamp_min(sum, 0.5.into()))
            } else {
                weights
            };
            let d_weights = B::float_matmul(d_context.clone(), turned::<B>(value));
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
            let d_scores = B::float_mul_scalar(d_scores, settings.scale.into());
            add_to::<B>(
                &mut d_values[tile],
                B::float_matmul(turned::<B>(weights), d_context.clone()),
            );
            add_to::<B>(
                &mut d_keys[tile],
                B::float_matmul(turned::<B>(d_scores.clone()), query.clone()),
            );
            add_to::<B>(&mut d_query, B::float_matmul(d_scores, key));
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
        cat::<B>(filled.collect())
    };
    InputGradients {
        query: cat::<B>(d_queries),
        key: whole(d_keys, key),
        value: whole(d_values, value),
    }
}

/// What holds for every tile of a call.
struct Call<'a, B: Backend> {
    settings: &'a TiledSettings,
    hidden: Option<BoolTensor<B>>,
    device: B::Device,
}

impl<'a, B: Backend> Call<'a, B> {
    fn new(settings: &'a TiledSettings, query: &FloatTensor<B>, hidden: MoreHidden<B>) -> Self {
        Self {
            settings,
            hidden: match hidden {
                MoreHidden::Nothing => None,
                MoreHidden::Where(hidden) => Some(hidden),
            },
            device: query.device(),
        }
    }

    /// What anybody sees of a tile: all examples go through it together.
    fn sight(&self, queries: &Range<usize>, keys: &Range<usize>) -> Sight {
        let shape = &self.settings.shape;
        (0..shape.batch)
            .map(|example| {
                let rule = &self.settings.rule;
                rule.tile(shape, example, queries.clone(), keys.clone())
            })
            .reduce(|a, b| if a == b { a } else { Sight::Part })
            .unwrap_or(Sight::Nothing)
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

    /// The scores of a tile, the lowest where hidden, and what is hidden.
    fn scores(
        &self,
        query: FloatTensor<B>,
        key: FloatTensor<B>,
        queries: &Range<usize>,
        keys: &Range<usize>,
        sight: Sight,
    ) -> (FloatTensor<B>, Option<BoolTensor<B>>) {
        let scores = B::float_matmul(query, turned::<B>(key)); // [batch, kv_heads, group * tile, tile]
        let scores = B::float_mul_scalar(scores, self.settings.scale.into());
        let hidden = self.hidden(queries, keys, sight, scores.shape());
        let scores = match &hidden {
            Some(hidden) => B::float_mask_fill(scores, hidden.clone(), LOWEST.into()),
            None => scores,
        };
        (scores, hidden)
    }

    fn zero(&self, weights: FloatTensor<B>, hidden: Option<BoolTensor<B>>) -> FloatTensor<B> {
        match hidden {
            Some(hidden) => B::float_mask_fill(weights, hidden, 0.0.into()),
            None => weights,
        }
    }

    /// What is hidden in a tile, in the shape of its scores.
    fn hidden(
        &self,
        queries: &Range<usize>,
        keys: &Range<usize>,
        sight: Sight,
        scores: Shape,
    ) -> Option<BoolTensor<B>> {
        let shape = &self.settings.shape;
        let full = Shape::from([shape.batch, shape.heads, queries.len(), keys.len()]);
        let by_rule = (sight == Sight::Part).then(|| {
            let mut bits = Vec::with_capacity(shape.batch * queries.len() * keys.len());
            for example in 0..shape.batch {
                let first = bits.len();
                bits.resize(first + queries.len() * keys.len(), false);
                for (column, key) in keys.clone().enumerate() {
                    for start in queries.clone().step_by(64) {
                        let some = start..queries.end.min(start + 64);
                        let seen = self.settings.rule.seen(shape, example, some.clone(), key);
                        for (bit, query) in some.enumerate() {
                            let place = (query - queries.start) * keys.len() + column;
                            bits[first + place] = seen >> bit & 1 == 0;
                        }
                    }
                }
            }
            let dims = [shape.batch, 1, queries.len(), keys.len()];
            let dtype = get_or_init_device_settings::<B>(&self.device).bool_dtype;
            let data = TensorData::new(bits, dims).convert_dtype(dtype.into());
            B::bool_expand(B::bool_from_data(data, &self.device), full.clone())
        });
        let by_mask = self.hidden.clone().map(|hidden| {
            let [batch, heads, seq_q, seq_k] = hidden.shape().dims();
            let span = |size: usize, range: &Range<usize>| {
                if size == 1 { 0..1 } else { range.clone() }
            };
            let slices = [
                Slice::from(0..batch),
                Slice::from(0..heads),
                Slice::from(span(seq_q, queries)),
                Slice::from(span(seq_k, keys)),
            ];
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

fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, 2),
    }
}
