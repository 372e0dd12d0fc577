//! Hard attention on CUDA: the scores of many queries at once, in ATen's operations.
//!
//! ```text
//! forward    best = argmax(scale · q kᵀ + noise),  context = v[best]
//! backward   dv[best] += do
//!            p = softmax((scale · q kᵀ + noise) / temperature),  dp = do vᵀ
//!            ds = p (dp - rowsum(p ∘ dp)) / temperature,  dq = scale · ds k,  dk = scale · dsᵀ q
//! ```
//!
//! As many queries are computed at a time as fit into a fixed amount of memory. Their keys are those
//! from the first to the last that one of them attends to. The [noise](noise) is computed again in
//! the backward pass.

mod mask;
mod noise;

use std::ops::Range;

use burn::backend::LibTorch;
use burn::backend::libtorch::TchTensor;
use tch::{Device, Kind, Tensor};

use self::mask::device_mask;
use self::noise::Noise;
use crate::analysis::weights::HardSelection;
use crate::flash::call::{
    InputGrads, Inputs, MASKED_SCORE, OutputGrads, Outputs, Program, Saved, TiledSettings,
};
use crate::pattern::{Examples, TilePlan};

/// Scores that are computed at a time: 64 MiB.
const MAX_SCORES: usize = 1 << 24;

/// The largest score of a query without a visible key is below this.
const FULLY_MASKED: f64 = -1e38;

/// How a call selects its keys, if it is hard attention that is computed here.
pub(super) fn selection(
    kind: Kind,
    has_mask_or_bias: bool,
    settings: &TiledSettings,
) -> Option<HardSelection> {
    let Program::Hard(selection) = settings.program else {
        return None;
    };
    let is_plain = settings.softcap.is_none()
        && settings.alibi.is_none()
        && settings.dropout.is_none()
        && settings.score_mod.is_none()
        && settings.gather.is_none()
        && !has_mask_or_bias;
    (is_plain && kind == Kind::Float).then_some(selection)
}

/// The scores of some queries.
struct Tile {
    queries: Range<usize>,
    keys: Range<usize>,
    /// Whether all keys are visible.
    is_full: bool,
}

struct Call<'a> {
    settings: &'a TiledSettings,
    /// `[batch · kv_heads, group, seq_q, d_head]`
    query: Tensor,
    /// `[batch · kv_heads, seq_k, d_head]`
    key: Tensor,
    /// `[batch · kv_heads, seq_k, d_value]`
    value: Tensor,
    noise: Option<Noise>,
    temperature: f64,
}

impl<'a> Call<'a> {
    fn new(
        inputs: &Inputs<LibTorch>,
        selection: HardSelection,
        settings: &'a TiledSettings,
    ) -> Self {
        let shape = &settings.shape;
        let [kv_heads, seq_k] = [shape.batch * shape.kv_heads, shape.seq_k].map(|it| it as i64);
        let keys = |tensor: &TchTensor| tensor.tensor.reshape([kv_heads, seq_k, -1]);
        let device = inputs.query.tensor.device();
        let (noise, temperature) = match selection {
            HardSelection::Best => (None, 1.0),
            HardSelection::Sampled { temperature, seed } => {
                let noise = Noise::new(seed, settings.first_head, shape, device);
                (Some(noise), temperature)
            }
        };
        let mut call = Self {
            settings,
            query: Tensor::new(),
            key: keys(&inputs.key),
            value: keys(&inputs.value),
            noise,
            temperature,
        };
        call.query = call.split_queries(&inputs.query.tensor);
        call
    }

    fn device(&self) -> Device {
        self.key.device()
    }

    /// `[batch, heads, seq_q, d]` as `[batch · kv_heads, group, seq_q, d]`.
    fn split_queries(&self, tensor: &Tensor) -> Tensor {
        let shape = &self.settings.shape;
        let size = [shape.batch * shape.kv_heads, shape.group(), shape.seq_q];
        let [kv_heads, group, seq_q] = size.map(|size| size as i64);
        tensor.reshape([kv_heads, group, seq_q, -1])
    }

    /// A view of `[batch · kv_heads, group · queries, d]` as `[batch, heads, queries, d]`.
    fn by_head(&self, tensor: &Tensor, tile: &Tile) -> Tensor {
        let shape = &self.settings.shape;
        let [batch, heads, queries] =
            [shape.batch, shape.heads, tile.queries.len()].map(|size| size as i64);
        tensor.view([batch, heads, queries, -1])
    }

    /// All queries, in tiles of a bounded number of scores.
    fn tiles(&self) -> Vec<Tile> {
        let shape = &self.settings.shape;
        let rows = MAX_SCORES / (shape.batch * shape.heads * shape.seq_k).max(1);
        let rows = rows.clamp(1, shape.seq_q);
        let plan = self.settings.plan([rows, 64], Examples::Together);
        let tile = |row: usize| tile_of_row(&plan, row);
        (0..plan.rows()).map(tile).collect()
    }

    /// Scores with noise, [`MASKED_SCORE`] where masked: `[batch · kv_heads, group · queries, keys]`.
    /// Also the mask, `[examples, 1, queries, keys]`.
    fn scores(&self, tile: &Tile) -> (Tensor, Option<Tensor>) {
        let shape = &self.settings.shape;
        let query = rows(&self.query, &tile.queries).flatten(1, 2) * self.settings.scale;
        let key = keys(&self.key, tile);
        let mut scores = query.matmul(&key.transpose(1, 2));
        if let Some(noise) = &self.noise {
            scores += noise.tile(&tile.queries, &tile.keys).reshape(scores.size());
        }
        if tile.is_full {
            return (scores, None);
        }
        let ranges = [tile.queries.clone(), tile.keys.clone()];
        let mask = device_mask(&self.settings.rule, shape, ranges, self.device());
        let _ = self
            .by_head(&scores, tile)
            .masked_fill_(&mask, f64::from(MASKED_SCORE));
        (scores, Some(mask))
    }
}

fn tile_of_row(plan: &TilePlan, row: usize) -> Tile {
    let tiles: Vec<_> = plan.tiles(0, row).collect();
    let first = tiles.first().map_or(0, |(keys, _)| keys.start);
    let last = tiles.last().map_or(0, |(keys, _)| keys.end);
    let covered: usize = tiles.iter().map(|(keys, _)| keys.len()).sum();
    Tile {
        queries: plan.queries(row),
        keys: first..last,
        is_full: covered == last - first && tiles.iter().all(|(_, is_full)| *is_full),
    }
}

/// Some queries of `[batch · kv_heads, group, seq_q, d]`.
fn rows(tensor: &Tensor, queries: &Range<usize>) -> Tensor {
    tensor.narrow(2, queries.start as i64, queries.len() as i64)
}

/// The keys of a tile.
fn keys(tensor: &Tensor, tile: &Tile) -> Tensor {
    tensor.narrow(1, tile.keys.start as i64, tile.keys.len() as i64)
}

/// Context, largest score, and the index of the selected key, -1 for a fully masked row.
pub(super) fn forward(
    inputs: &Inputs<LibTorch>,
    selection: HardSelection,
    settings: &TiledSettings,
) -> Outputs<LibTorch> {
    let call = Call::new(inputs, selection, settings);
    let shape = &settings.shape;
    let options = (Kind::Float, call.device());
    let mut outputs = [const { Vec::new() }; 3];
    for tile in call.tiles() {
        let size = [shape.batch, shape.heads, tile.queries.len()].map(|size| size as i64);
        let [batch, heads, queries] = size;
        let tensors = if tile.keys.is_empty() {
            [
                Tensor::zeros([batch, heads, queries, shape.d_value as i64], options),
                Tensor::full([batch, heads, queries, 1], f64::from(MASKED_SCORE), options),
                Tensor::full([batch, heads, queries, 1], -1.0, options),
            ]
        } else {
            let (scores, _) = call.scores(&tile);
            let (max, best) = scores.max_dim(2, true); // [batch · kv_heads, group · queries, 1]
            let fully_masked = max.lt(FULLY_MASKED);
            let index = best.expand([-1, -1, shape.d_value as i64], false);
            let context = keys(&call.value, &tile).gather(1, &index, false);
            let best = (best + tile.keys.start as i64).to_kind(Kind::Float);
            [
                context.masked_fill(&fully_masked, 0.0),
                max,
                best.masked_fill(&fully_masked, -1.0),
            ]
            .map(|tensor| call.by_head(&tensor, &tile))
        };
        for (output, tensor) in outputs.iter_mut().zip(tensors) {
            output.push(tensor);
        }
    }
    let [context, log_sum_exp, stats] = outputs.map(|tiles| TchTensor::new(Tensor::cat(&tiles, 2)));
    (context, log_sum_exp, stats)
}

pub(super) fn backward(
    saved: &Saved<LibTorch>,
    output_grads: &OutputGrads<LibTorch>,
    selection: HardSelection,
    settings: &TiledSettings,
) -> InputGrads<LibTorch> {
    let call = Call::new(&saved.inputs, selection, settings);
    let d_context = call.split_queries(&output_grads.d_context.tensor);
    let best = call.split_queries(&saved.stats.tensor);
    let d_value = value_gradient(&call, &d_context, &best);
    let mut d_query = call.query.zeros_like();
    let mut d_key = call.key.zeros_like();
    if call.noise.is_some() {
        for tile in call.tiles().iter().filter(|tile| !tile.keys.is_empty()) {
            let (mut scores, mask) = call.scores(tile);
            let _ = scores.g_div_scalar_(call.temperature);
            let weights = scores.softmax(2, None::<Kind>);
            if let Some(mask) = mask {
                let _ = call.by_head(&weights, tile).masked_fill_(&mask, 0.0);
            }
            let query = rows(&call.query, &tile.queries);
            let d_context = rows(&d_context, &tile.queries).flatten(1, 2);
            let d_weights = d_context.matmul(&keys(&call.value, tile).transpose(1, 2));
            let d_scores =
                Tensor::internal_softmax_backward_data(&d_weights, &weights, 2, Kind::Float);
            let d_queries = d_scores.matmul(&keys(&call.key, tile));
            rows(&d_query, &tile.queries).copy_(&d_queries.reshape(query.size()));
            let _ =
                keys(&d_key, tile).g_add_(&d_scores.transpose(1, 2).matmul(&query.flatten(1, 2)));
        }
        for grad in [&mut d_query, &mut d_key] {
            let _ = grad.g_mul_scalar_(settings.scale / call.temperature);
        }
    }
    let inputs = [&saved.inputs.query, &saved.inputs.key, &saved.inputs.value];
    let grads = [&mut d_query, &mut d_key, &mut { d_value }];
    let mut grads = grads
        .into_iter()
        .zip(inputs)
        .map(|(grad, input)| TchTensor::new(grad.reshape(input.tensor.size())));
    let mut next = || grads.next().expect("there are three gradients");
    InputGrads {
        qkv: [next(), next(), next()],
        bias: None,
        parameter: None,
    }
}

/// The gradient of a value: the sum of the output gradients of the queries that selected it.
fn value_gradient(call: &Call<'_>, d_context: &Tensor, best: &Tensor) -> Tensor {
    let [kv_heads, seq_k, d_value] = [0, 1, 2].map(|dim| call.value.size()[dim]);
    let is_masked = best.lt(0.0); // [batch · kv_heads, group, seq_q, 1]
    let d_context = d_context
        .masked_fill(&is_masked, 0.0)
        .reshape([-1, d_value]);
    let first = Tensor::arange(kv_heads, (Kind::Int64, call.device())) * seq_k;
    let index = best.clamp_min(0.0).to_kind(Kind::Int64) + first.reshape([-1, 1, 1, 1]);
    let mut d_value = Tensor::zeros([kv_heads * seq_k, d_value], (Kind::Float, call.device()));
    // Unlike `index_add_`, this sorts the indices, and is deterministic.
    let _ = d_value.index_put_(&[Some(index.reshape([-1]))], &d_context, true);
    d_value
}

#[cfg(test)]
mod tests;
