//! Operations on one tile, forward and backward.

use std::ops::Range;
use std::sync::Arc;

use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{
    Backend, BoolDType, Shape, Slice, TensorData, TensorMetadata, get_or_init_device_settings,
};
use burn::tensor::FloatDType;

use super::relative_bias;
use super::tensor_ops::{mask_or, transpose};
use crate::flash::call::{
    DenseMask, Inputs, MASKED_SCORE, MIN_VISIBLE_SCORE, Optional, Program, TiledSettings,
};
use crate::matmul::TileOps;
use crate::pattern::gather::Indices;
use crate::pattern::rule::query_position;
use crate::pattern::{Examples, TilePlan};
use crate::score_mod::{QueryPositions, ScoreMod, ScoreTile, finite_or_zero};

/// Queries and keys in a tile: large enough to amortise the launch of a matmul, small enough that
/// the scores of a tile (256 KB a head) need little memory.
pub(super) const TILE: usize = 256;

/// A range of queries and a range of keys.
pub(super) struct Tile {
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// The rule masks nothing in it.
    pub(super) is_unmasked: bool,
}

/// The scores of a tile, all `[batch, kv_heads, group * tile, tile]`.
pub(super) struct TileScores<B: Backend> {
    /// [`MASKED_SCORE`] where masked.
    pub(super) scores: FloatTensor<B>,
    pub(super) mask: Option<BoolTensor<B>>,
    /// The derivative of score function and softcap.
    pub(super) score_grad: Option<FloatTensor<B>>,
    /// The distances of the keys from a predicted position.
    pub(super) distances: Option<FloatTensor<B>>,
}

/// The state of the online softmax of a query tile.
pub(super) struct SoftmaxState<B: Backend> {
    /// `[batch, kv_heads, group * tile, 1]`, like the sum.
    pub(super) max: FloatTensor<B>,
    pub(super) sum: FloatTensor<B>,
    /// `[batch, kv_heads, group * tile, d_value]`, not yet divided by the sum.
    pub(super) context: FloatTensor<B>,
}

/// The arguments of a call that all tiles share.
pub(super) struct Call<'a, B: Backend> {
    pub(super) settings: &'a TiledSettings,
    pub(super) plan: Arc<TilePlan>,
    pub(super) mask: DenseMask<B>,
    pub(super) bias: Optional<B>,
    pub(super) parameter: Optional<B>,
    pub(super) device: B::Device,
}

impl<'a, B: TileOps> Call<'a, B> {
    pub(super) fn new(settings: &'a TiledSettings, inputs: &Inputs<B>) -> Self {
        Self {
            settings,
            // A tile covers all examples at once.
            plan: settings.plan([TILE, TILE], Examples::Together),
            mask: inputs.mask.clone(),
            bias: inputs.bias.clone(),
            parameter: inputs.parameter.clone(),
            device: inputs.query.device(),
        }
    }

    /// The tiles of a row of the plan.
    pub(super) fn tiles(&self, row: usize) -> impl Iterator<Item = Tile> {
        let tiles = self.plan.tiles(0, row);
        tiles.map(move |(keys, is_unmasked)| Tile {
            queries: self.plan.queries(row),
            keys,
            is_unmasked,
        })
    }

    /// `[batch, heads, tile, d]` as `[batch, kv_heads, group * tile, d]`: the queries of heads that
    /// share a key and value head are concatenated.
    pub(super) fn group_heads(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [_, _, tile, width] = tensor.shape().dims();
        let grouped = [shape.batch, shape.kv_heads, shape.group() * tile, width];
        B::float_reshape(tensor, Shape::from(grouped))
    }

    /// The inverse of [`group_heads`](Self::group_heads).
    pub(super) fn split_heads(&self, tensor: FloatTensor<B>, tile: usize) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        if shape.group() == 1 {
            return tensor;
        }
        let [.., width] = tensor.shape().dims::<4>();
        B::float_reshape(tensor, Shape::from([shape.batch, shape.heads, tile, width]))
    }

    fn tile_dims(&self, tile: &Tile) -> [usize; 4] {
        let shape = &self.settings.shape;
        let (queries, keys) = (tile.queries.len(), tile.keys.len());
        [shape.batch, shape.heads, queries, keys]
    }

    fn broadcast_to_scores(&self, tensor: FloatTensor<B>, tile: &Tile) -> FloatTensor<B> {
        self.group_heads(B::float_expand(tensor, Shape::from(self.tile_dims(tile))))
    }

    pub(super) fn scores(
        &self,
        query: FloatTensor<B>,
        key: FloatTensor<B>,
        tile: &Tile,
    ) -> TileScores<B> {
        let settings = self.settings;
        // [batch, kv_heads, group * tile, tile]
        let dots = match settings.program {
            Program::Additive => B::mlp_scores([query, key, self.vectors(tile.queries.len())]),
            Program::Softmax | Program::Gaussian { .. } | Program::Sigmoid | Program::Hard(_) => {
                B::f32_matmul(query, transpose::<B>(key))
            }
        };
        let dots = B::float_mul_scalar(dots, settings.scale.into());
        let (scores, score_grad) = match &settings.score_mod {
            None => (dots, None),
            Some(score_mod) => {
                let (scores, grad) = self.modified(dots, score_mod, tile);
                (scores, Some(grad))
            }
        };
        let (scores, score_grad) = match settings.softcap {
            None => (scores, score_grad),
            Some(cap) => {
                let tanh = B::float_tanh(B::float_div_scalar(scores, cap.into()));
                let square = B::float_mul(tanh.clone(), tanh.clone());
                let grad = B::float_add_scalar(B::float_neg(square), 1.0.into());
                let grad = match score_grad {
                    Some(score_grad) => B::float_mul(score_grad, grad),
                    None => grad,
                };
                (B::float_mul_scalar(tanh, cap.into()), Some(grad))
            }
        };
        // A score function may mask keys by minus infinity, the only score below `f32::MIN`.
        let infinite = settings.score_mod.is_some();
        let infinite = infinite.then(|| self.lower(scores.clone(), f32::MIN));
        let scores = match &settings.alibi {
            None => scores,
            Some(slopes) => B::float_sub(scores, self.alibi_penalty(slopes, tile)),
        };
        let (scores, bias_mask) = match &self.bias {
            Optional::None => (scores, None),
            Optional::Tensor(bias) => {
                let bias = if settings.has_relative_bias {
                    let seq_q = settings.shape.seq_q;
                    relative_bias::tile::<B>(bias, seq_q, &tile.queries, &tile.keys)
                } else {
                    let slices = tile_slices(bias.shape().dims(), tile);
                    B::float_slice(bias.clone(), &slices)
                };
                let bias = self.broadcast_to_scores(bias, tile);
                let scores = B::float_add(scores, bias.clone());
                // Filled and not clamped: clamping may drop NaN.
                let too_low = self.lower(scores.clone(), MIN_VISIBLE_SCORE);
                let scores = B::float_mask_fill(scores, too_low, MIN_VISIBLE_SCORE.into());
                // Only minus infinity is below `f32::MIN`.
                (scores, Some(self.lower(bias, f32::MIN)))
            }
        };
        let mask = mask_or::<B>(self.tile_mask(tile, scores.shape()), bias_mask);
        let mask = mask_or::<B>(mask, infinite);
        let distances = self.distances(tile);
        let (mask, distances) = match distances {
            None => (mask, None),
            Some((distances, outside)) => (mask_or::<B>(mask, Some(outside)), Some(distances)),
        };
        let scores = match &mask {
            Some(mask) => B::float_mask_fill(scores, mask.clone(), MASKED_SCORE.into()),
            None => scores,
        };
        TileScores {
            scores,
            mask,
            score_grad,
            distances,
        }
    }

    /// The vectors of additive attention, a row for each query of each head:
    /// `[1, kv_heads, group * queries, d_head]`.
    pub(super) fn vectors(&self, queries: usize) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        let vectors = self.parameter.as_ref().expect("a vector for each head");
        let [heads, d_head] = [shape.heads, shape.d_head];
        let all = B::float_expand(vectors.clone(), Shape::from([1, heads, queries, d_head]));
        let grouped = [1, shape.kv_heads, shape.group() * queries, d_head];
        B::float_reshape(all, Shape::from(grouped))
    }

    /// Scores modified by a function of the host, and its derivatives.
    fn modified(
        &self,
        scores: FloatTensor<B>,
        score_mod: &ScoreMod,
        tile: &Tile,
    ) -> (FloatTensor<B>, FloatTensor<B>) {
        let [batch, heads, queries, keys] = self.tile_dims(tile);
        let by_head = B::float_reshape(scores.clone(), Shape::from(self.tile_dims(tile)));
        let data = burn::tensor::try_read_sync(B::float_into_data(by_head))
            .and_then(Result::ok)
            .expect("scores can be read from the device");
        let before: Vec<f32> = data.iter::<f32>().collect();
        let (mut after, mut derivatives) = (before.clone(), vec![0.0; before.len()]);
        for (i, (scores, derivatives)) in after
            .chunks_exact_mut(queries * keys)
            .zip(derivatives.chunks_exact_mut(queries * keys))
            .enumerate()
        {
            score_mod.apply(ScoreTile {
                scores,
                derivatives,
                factor: 1.0,
                example: i / heads,
                head: self.settings.first_head + i % heads,
                queries: QueryPositions::Consecutive {
                    first: query_position(&self.settings.shape, tile.queries.start),
                    count: queries,
                },
                keys: Indices::Range(tile.keys.clone()),
                strides: [keys, 1],
            });
        }
        let dims = [batch, heads, queries, keys];
        let finite = finite_or_zero(&derivatives);
        let [before, after, derivatives, finite] = [before, after, derivatives, finite]
            .map(|values| self.group_heads(self.tensor(values, dims)));
        // The difference is zero. Its derivative is for autodiff, if it records these operations.
        let difference = B::float_mul(B::float_sub(scores, before), finite);
        (B::float_add(after, difference), derivatives)
    }

    /// The distances of keys from the predicted positions, and which of them are outside of the
    /// window: `[batch, kv_heads, group * tile, tile]`.
    fn distances(&self, tile: &Tile) -> Option<(FloatTensor<B>, BoolTensor<B>)> {
        let Program::Gaussian { window } = self.settings.program else {
            return None;
        };
        let positions = self.parameter.as_ref().expect("a position for each query");
        let rows = [
            Slice::full(),
            Slice::full(),
            Slice::from(tile.queries.clone()),
        ];
        let positions = self.group_heads(B::float_slice(positions.clone(), &rows));
        let keys = tile.keys.clone().map(|key| key as f32).collect();
        let keys = self.tensor(keys, [1, 1, 1, tile.keys.len()]);
        let distances = B::float_sub(keys, positions);
        let abs = B::float_abs(distances.clone());
        let outside = B::float_greater_elem(abs, window.into(), self.bool_dtype());
        Some((distances, outside))
    }

    /// The Gaussian factors of distances.
    fn gaussian(&self, distances: FloatTensor<B>) -> Option<FloatTensor<B>> {
        let Program::Gaussian { window } = self.settings.program else {
            return None;
        };
        let square = B::float_mul(distances.clone(), distances);
        let exponent = B::float_mul_scalar(square, (-2.0 / (window * window)).into());
        Some(B::float_exp(exponent))
    }

    fn lower(&self, tensor: FloatTensor<B>, bound: f32) -> BoolTensor<B> {
        B::float_lower_elem(tensor, bound.into(), self.bool_dtype())
    }

    /// `weights · rows` over the keys of a tile. Masked rows contribute nothing even if they are
    /// not finite. A query that attends to a non-finite row gets NaN.
    pub(super) fn weighted_sum(
        &self,
        weights: FloatTensor<B>,
        rows: FloatTensor<B>,
        is_masked: bool,
    ) -> FloatTensor<B> {
        if !is_masked {
            return B::f32_matmul(weights, rows);
        }
        let finite = self.is_finite(rows.clone());
        let non_finite = B::bool_into_float(B::bool_not(finite), FloatDType::F32);
        let non_finite = B::float_max_dim(non_finite, 3); // [batch, kv_heads, tile, 1]
        let weight = B::f32_matmul(weights.clone(), non_finite); // [batch, kv_heads, group * tile, 1]
        let is_visible = B::bool_not(self.lower_equal(weight.clone(), 0.0));
        let zeros = self.zeros_like(&weight);
        let nan_rows = B::float_mask_fill(zeros, is_visible, f32::NAN.into());
        B::float_add(B::f32_matmul(weights, self.zero_non_finite(rows)), nan_rows)
    }

    pub(super) fn zero_non_finite(&self, tensor: FloatTensor<B>) -> FloatTensor<B> {
        let non_finite = B::bool_not(self.is_finite(tensor.clone()));
        B::float_mask_fill(tensor, non_finite, 0.0.into())
    }

    fn is_finite(&self, tensor: FloatTensor<B>) -> BoolTensor<B> {
        self.lower_equal(B::float_abs(tensor), f32::MAX)
    }

    fn lower_equal(&self, tensor: FloatTensor<B>, bound: f32) -> BoolTensor<B> {
        B::float_lower_equal_elem(tensor, bound.into(), self.bool_dtype())
    }

    fn bool_dtype(&self) -> BoolDType {
        get_or_init_device_settings::<B>(&self.device).bool_dtype
    }

    fn alibi_penalty(&self, slopes: &[f32], tile: &Tile) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        let distances: Vec<f32> = tile
            .queries
            .clone()
            .flat_map(|query| {
                let position = query_position(shape, query);
                let keys = tile.keys.clone();
                keys.map(move |key| position.abs_diff(key as i64) as f32)
            })
            .collect();
        let distances = self.tensor(distances, [1, 1, tile.queries.len(), tile.keys.len()]);
        let slopes = self.tensor(slopes.to_vec(), [1, shape.heads, 1, 1]);
        B::float_mul(
            self.broadcast_to_scores(distances, tile),
            self.broadcast_to_scores(slopes, tile),
        )
    }

    /// The dropout factors of a tile: 0 or `1/(1 - probability)`.
    fn dropout_factors(&self, tile: &Tile) -> Option<FloatTensor<B>> {
        let dropout = self.settings.dropout?;
        let shape = &self.settings.shape;
        let dims = self.tile_dims(tile);
        let mut factors = Vec::with_capacity(dims.iter().product());
        for example in 0..shape.batch {
            for head in 0..shape.heads {
                for query in tile.queries.clone() {
                    dropout.write_factors([example, head, query], tile.keys.clone(), &mut factors);
                }
            }
        }
        Some(self.group_heads(self.tensor(factors, dims)))
    }

    /// The factors of the weights of a tile, by dropout and by distance from a position.
    pub(super) fn factors(
        &self,
        tile: &Tile,
        distances: Option<FloatTensor<B>>,
    ) -> Option<FloatTensor<B>> {
        let gaussian = distances.and_then(|distances| self.gaussian(distances));
        match (self.dropout_factors(tile), gaussian) {
            (Some(dropout), Some(gaussian)) => Some(B::float_mul(dropout, gaussian)),
            (dropout, gaussian) => dropout.or(gaussian),
        }
    }

    pub(super) fn zeros_like(&self, tensor: &FloatTensor<B>) -> FloatTensor<B> {
        B::float_zeros(tensor.shape(), &self.device, FloatDType::F32)
    }

    fn tensor(&self, values: Vec<f32>, dims: [usize; 4]) -> FloatTensor<B> {
        B::float_from_data(TensorData::new(values, dims), &self.device)
    }

    /// The mask of a tile, in the shape of its scores.
    fn tile_mask(&self, tile: &Tile, scores: Shape) -> Option<BoolTensor<B>> {
        let shape = &self.settings.shape;
        let full = Shape::from(self.tile_dims(tile));
        let from_rule = (!tile.is_unmasked).then(|| {
            let rule = &self.settings.rule;
            let examples = rule.num_distinct_examples(shape);
            let mut mask = Vec::new();
            for example in 0..examples {
                let ranges = [tile.queries.clone(), tile.keys.clone()];
                rule.write_mask(shape, example, ranges, &mut mask);
            }
            let dims = [examples, 1, tile.queries.len(), tile.keys.len()];
            let data = TensorData::new(mask, dims).convert_dtype(self.bool_dtype().into());
            B::bool_expand(B::bool_from_data(data, &self.device), full.clone())
        });
        let from_mask = self.mask.as_ref().map(|mask| {
            let slices = tile_slices(mask.shape().dims(), tile);
            B::bool_expand(B::bool_slice(mask.clone(), &slices), full.clone())
        });
        let mask = mask_or::<B>(from_rule, from_mask)?;
        Some(B::bool_reshape(mask, scores))
    }

    /// Context, log-sum-exp and statistics from the state of the online softmax; zero and
    /// [`MASKED_SCORE`] for a fully masked row.
    pub(super) fn finish(&self, state: SoftmaxState<B>) -> [FloatTensor<B>; 3] {
        let SoftmaxState { max, sum, context } = state;
        let stats = B::float_cat(vec![max.clone(), sum.clone()], 3);
        // The maximum contributes 1 to the sum. For a fully masked row the context is zero
        // already, and any positive divisor keeps it.
        let sum = B::float_clamp_min(sum, 0.5.into());
        let log_sum_exp = B::float_add(max, B::float_log(sum.clone()));
        [B::float_div(context, sum), log_sum_exp, stats]
    }

    /// The initial state of `tile` queries of each head if weights are not normalised.
    pub(super) fn unnormalized(&self, tile: usize) -> SoftmaxState<B> {
        let state = self.fully_masked(tile);
        SoftmaxState {
            max: self.zeros_like(&state.max),
            sum: B::float_ones(state.max.shape(), &self.device, FloatDType::F32),
            ..state
        }
    }

    /// Gradients of [`vectors`](Self::vectors) as `[1, heads, queries, d_head]`.
    pub(super) fn split_vectors(&self, grads: FloatTensor<B>, queries: usize) -> FloatTensor<B> {
        let shape = &self.settings.shape;
        B::float_reshape(grads, Shape::from([1, shape.heads, queries, shape.d_head]))
    }

    /// The state of `tile` fully masked queries of each head.
    pub(super) fn fully_masked(&self, tile: usize) -> SoftmaxState<B> {
        let shape = &self.settings.shape;
        let rows = shape.group() * tile;
        let dims = |width| Shape::from([shape.batch, shape.kv_heads, rows, width]);
        let context = B::float_zeros(dims(shape.d_value), &self.device, FloatDType::F32);
        let max = B::float_full(dims(1), MASKED_SCORE.into(), &self.device, FloatDType::F32);
        let sum = self.zeros_like(&max);
        SoftmaxState { max, sum, context }
    }
}

/// The slice of a tensor that broadcasts to `[batch, heads, seq_q, seq_k]` for a tile.
fn tile_slices([batch, heads, seq_q, seq_k]: [usize; 4], tile: &Tile) -> [Slice; 4] {
    let slice = |size: usize, range: &Range<usize>| {
        if size == 1 { 0..1 } else { range.clone() }
    };
    [
        Slice::from(0..batch),
        Slice::from(0..heads),
        Slice::from(slice(seq_q, &tile.queries)),
        Slice::from(slice(seq_k, &tile.keys)),
    ]
}
