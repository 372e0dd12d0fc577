//! What is done to a tile by the operations every backend has, forward and backward.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};
use burn::tensor::FloatDType;

use crate::flash::call::{Bias, MoreHidden, Outputs, TiledSettings};
use crate::pattern::rule::place;
use crate::pattern::{Examples, TilePlan, kept};

/// Queries and keys in a tile: large enough that a matmul of it is worth a call,
/// small enough that the scores of a tile (256 KB a head) are cheap to hold.
pub(super) const TILE: usize = 256;

/// Stands for minus infinity in the scores of hidden keys: infinities are not part of what
/// WGSL promises, and two of them make a NaN. Half as large as the largest number, so that a
/// difference of two scores is finite.
const LOWEST: f32 = -2e38;

/// The least score of a key that is not hidden, however negative its bias is.
const LEAST_VISIBLE: f32 = -1e38;

/// Some queries against some keys.
pub(super) struct Tile {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// Nothing in it is hidden by the rule.
    pub(super) is_whole: bool,
}

/// The scores of a tile, all `[batch, kv_heads, group * tile, tile]`.
pub(super) struct Scored<B: Backend> {
    /// The lowest where hidden.
    pub(super) scores: FloatTensor<B>,
    pub(super) hidden: Option<BoolTensor<B>>,
    /// What a gradient is multiplied by on its way back through the softcap.
    pub(super) slope: Option<FloatTensor<B>>,
}

/// What holds for every tile of a call.
pub(super) struct Call<'a, B: Backend> {
    pub(super) settings: &'a TiledSettings,
    pub(super) plan: Arc<TilePlan>,
    pub(super) hidden: Option<BoolTensor<B>>,
    pub(super) bias: Bias<B>,
    pub(super) device: B::Device,
}

impl<'a, B: Backend> Call<'a, B> {
    pub(super) fn new(
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
    pub(super) fn grouped(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [_, _, tile, width] = tensor.shape().dims();
        let grouped = [shape.batch, shape.kv_heads, shape.group() * tile, width];
        B::float_reshape(tensor, Shape::from(grouped))
    }

    /// And back again.
    pub(super) fn by_head(&self, tensor: FloatTensor<B>, tile: usize) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [.., width] = tensor.shape().dims::<4>();
        B::float_reshape(tensor, Shape::from([shape.batch, shape.heads, tile, width]))
    }

    /// Something of a tile by head: `[batch, heads, tile, tile]`.
    pub(super) fn full(&self, tensor: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
        B::float_reshape(tensor, Shape::from(self.full_dims(tile)))
    }

    fn full_dims(&self, tile: &Tile) -> [usize; 4] {
        let shape = &self.settings.shape;
        let (queries, keys) = (tile.queries.len(), tile.keys.len());
        [shape.batch, shape.heads, queries, keys]
    }

    /// Something for each place of a tile, where one may stand for all, in the shape
    /// of its scores.
    pub(super) fn like_scores(&self, tensor: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
        self.grouped(B::float_expand(tensor, Shape::from(self.full_dims(tile))))
    }

    pub(super) fn scores(
        &self,
        query: FloatTensor<B>,
        key: FloatTensor<B>,
        tile: &Tile,
    ) -> Scored<B> {
        let settings = self.settings;
        let products = B::float_matmul(query, transposed::<B>(key)); // [batch, kv_heads, group * tile, tile]
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
        let (scores, hidden_by_bias) = match &self.bias {
            Bias::Nothing => (scores, None),
            Bias::Added(bias) => {
                let slices = spans(bias.shape().dims(), tile);
                let bias = B::float_slice(bias.clone(), &slices);
                let bias = self.like_scores(bias, tile);
                let scores = B::float_add(scores, bias.clone());
                // Filled and not clamped: clamping may lose NaN.
                let too_low = self.below(scores.clone(), LEAST_VISIBLE);
                let scores = B::float_mask_fill(scores, too_low, LEAST_VISIBLE.into());
                // Minus infinity alone is below the least number.
                (scores, Some(self.below(bias, f32::MIN)))
            }
        };
        let hidden = either::<B>(self.hidden(tile, scores.shape()), hidden_by_bias);
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

    fn below(&self, tensor: FloatTensor<B>, number: f32) -> BoolTensor<B> {
        let dtype = get_or_init_device_settings::<B>(&self.device).bool_dtype;
        B::float_lower_elem(tensor, number.into(), dtype)
    }

    /// `weights · rows` over the keys of a tile, in which hidden ones contribute nothing even
    /// if they are not finite. A query that sees a row that is not finite gets NaN.
    pub(super) fn weighted_sum(
        &self,
        weights: FloatTensor<B>,
        rows: FloatTensor<B>,
        hides: bool,
    ) -> FloatTensor<B> {
        if !hides {
            return B::float_matmul(weights, rows);
        }
        let finite = self.is_finite(rows.clone());
        let infinite = B::bool_into_float(B::bool_not(finite), FloatDType::F32);
        let infinite = B::float_max_dim(infinite, 3); // [batch, kv_heads, tile, 1]
        let seen = B::float_matmul(weights.clone(), infinite); // [batch, kv_heads, group * tile, 1]
        let sees = B::bool_not(self.below_or_equal(seen.clone(), 0.0));
        let nothing = B::float_zeros(seen.shape(), &self.device, FloatDType::F32);
        let poison = B::float_mask_fill(nothing, sees, f32::NAN.into());
        B::float_add(B::float_matmul(weights, self.finite(rows)), poison)
    }

    /// A tensor with zeros for the elements that are not finite.
    pub(super) fn finite(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let infinite = B::bool_not(self.is_finite(tensor.clone()));
        B::float_mask_fill(tensor, infinite, 0.0.into())
    }

    fn is_finite(&self, tensor: FloatTensor<B>) -> BoolTensor<B> {
        self.below_or_equal(B::float_abs(tensor), f32::MAX)
    }

    fn below_or_equal(&self, tensor: FloatTensor<B>, number: f32) -> BoolTensor<B> {
        let dtype = get_or_init_device_settings::<B>(&self.device).bool_dtype;
        B::float_lower_equal_elem(tensor, number.into(), dtype)
    }

    /// What ALiBi takes off the scores of a tile.
    pub(super) fn falling(&self, slopes: &[f32], tile: &Tile) -> FloatTensor<B> {
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
    pub(super) fn factors(&self, tile: &Tile) -> Option<FloatTensor<B>> {
        let dropout = self.settings.dropout?;
        let shape = &self.settings.shape;
        let dims = self.full_dims(tile);
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

    pub(super) fn drop_some(
        &self,
        weights: FloatTensor<B>,
        factors: Option<FloatTensor<B>>,
    ) -> FloatTensor<B> {
        match factors {
            Some(factors) => B::float_mul(weights, factors),
            None => weights,
        }
    }

    pub(super) fn zeros_like(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
        B::float_zeros(tensor.shape(), &self.device, FloatDType::F32)
    }

    pub(super) fn tensor(&self, numbers: Vec<f32>, dims: [usize; 4]) -> FloatTensor<B> {
        B::float_from_data(TensorData::new(numbers, dims), &self.device)
    }

    /// What is hidden in a tile, in the shape of its scores.
    pub(super) fn hidden(&self, tile: &Tile, scores: Shape) -> Option<BoolTensor<B>> {
        let shape = &self.settings.shape;
        let full = Shape::from(self.full_dims(tile));
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
        let hidden = either::<B>(by_rule, by_mask)?;
        Some(B::bool_reshape(hidden, scores))
    }

    /// Context, log-sum-exp and statistics from the running softmax; zero and the lowest for a
    /// fully masked row.
    pub(super) fn finish(
        &self,
        most: FloatTensor<B>,
        sum: FloatTensor<B>,
        context: FloatTensor<B>,
    ) -> Outputs<B> {
        let stats = B::float_cat(vec![most.clone(), sum.clone()], 3);
        // At least 1, from the largest score itself, unless nothing was seen; then
        // the context is zero already, and any positive number keeps it.
        let sum = B::float_clamp_min(sum, 0.5.into());
        let log_sum_exp = B::float_add(most, B::float_log(sum.clone()));
        (B::float_div(context, sum), log_sum_exp, stats)
    }

    pub(super) fn fully_masked(&self, tile: usize) -> Outputs<B> {
        let shape = &self.settings.shape;
        let rows = shape.group() * tile;
        let of = |width| Shape::from([shape.batch, shape.kv_heads, rows, width]);
        let context = B::float_zeros(of(shape.d_value), &self.device, FloatDType::F32);
        let lowest = B::float_full(of(1), LOWEST.into(), &self.device, FloatDType::F32);
        let sum = B::float_zeros(of(1), &self.device, FloatDType::F32);
        let stats = B::float_cat(vec![lowest.clone(), sum], 3);
        (context, lowest, stats)
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

/// What either of two masks hides.
fn either<B: Backend>(a: Option<BoolTensor<B>>, b: Option<BoolTensor<B>>) -> Option<BoolTensor<B>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(B::bool_or(a, b)),
        (a, b) => a.or(b),
    }
}

pub(super) fn zero<B: Backend>(
    weights: FloatTensor<B>,
    hidden: Option<BoolTensor<B>>,
) -> FloatTensor<B> {
    match hidden {
        Some(hidden) => B::float_mask_fill(weights, hidden, 0.0.into()),
        None => weights,
    }
}

/// The ranges of the tiles of a sequence.
pub(super) fn tiles(length: usize) -> impl Iterator<Item = Range<usize>> {
    (0..length)
        .step_by(TILE)
        .map(move |start| start..length.min(start + TILE))
}

pub(super) fn transposed<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    B::float_swap_dims(tensor, 2, 3)
}

/// Adds to a sum, or begins it.
pub(super) fn add_to<B: Backend>(sum: &mut Option<FloatTensor<B>>, more: FloatTensor<B>) {
    *sum = Some(match sum.take() {
        Some(sum) => B::float_add(sum, more),
        None => more,
    });
}

pub(super) fn cat<B: Backend>(mut tiles: Vec<FloatTensor<B>>, dim: usize) -> FloatTensor<B> {
    match tiles.len() {
        1 => tiles.remove(0),
        _ => B::float_cat(tiles, dim),
    }
}
