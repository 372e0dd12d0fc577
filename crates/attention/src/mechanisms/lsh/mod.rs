//! LSH attention: softmax over keys with the same hash as the query.
//!
//! Kitaev et al., [Reformer](https://arxiv.org/abs/2001.04451), 2020.
//!
//! ```text
//! k_j     = q_j / |q_j|                  shared queries and keys
//! o_i     = Σ_j exp(s q_i·k_j) v_j / Σ_j exp(s q_i·k_j)     over the visible keys of i
//! hash(x) = argmax [xR; -xR]             R resampled for each round
//! ```
//!
//! In each round positions are sorted by hash, then by position, and split into chunks. A position
//! attends to the keys of its own chunk and of the previous one; the chunk before the first is the
//! last. Rounds are merged exactly: the sums run over the union of the keys of all rounds.
//!
//! Since its own key would always have the largest score, a position attends to itself only if it
//! has no other visible key.

mod chunks;
#[cfg(any(feature = "cube", feature = "tch"))]
#[allow(deprecated)] // Burn 0.22 is the last to include NdArray and LibTorch, which we support.
mod device;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod gathered;
mod hashing;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
mod nearest;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
#[allow(deprecated)] // as above
mod normalize;
mod visibility;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, Int, Tensor, TensorData};
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use burn::{backend::Dispatch, tensor::DType};
use zoo_spec::Lsh;

use self::chunks::{ChunkLayout, Chunks, Round};
#[cfg(any(feature = "cube", feature = "tch"))]
use self::device::DeviceLayout;
#[cfg(any(feature = "cube", feature = "tch"))]
pub(super) use self::device::gather_rows;
pub use self::hashing::Hashing;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use self::normalize::NormalizeRows;
use self::visibility::Visibility;
use super::{Attention, Call, Inputs, Mode, Params};
use crate::analysis::weights::WeightFunction;
use crate::counter::mix;
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use crate::finite::{is_finite, max_abs};
use crate::flash::{FlashOutput, flash_with_log_sum_exp, merge};
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use crate::flash::{flash_gathered, supports_gather};
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use crate::pattern::rule::Rule;
use crate::precision::{check, narrow, widen};
use crate::seed::next_seed;
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

impl Attention for Lsh {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        // As in the paper, every training pass has its own hash directions.
        let seed = match call.params.mode {
            Mode::Training => mix(self.seed ^ next_seed(&inputs.query.device())),
            Mode::Function | Mode::Inference => self.seed,
        };
        let hashing = Lsh { seed, ..*self };
        lsh(inputs.query, inputs.value, &hashing, call.options).into()
    }

    fn weight_fn(&self, _: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Hashed(*self)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        // The own chunk and the previous one, in each round.
        let keys = (2 * self.bucket_size * self.n_hashes).min(shape.seq_k);
        2.0 * (shape.heads * shape.seq_q * keys * (shape.d_head + shape.d_value)) as f64
    }
}

/// LSH attention over the keys that the pattern of the options allows.
///
/// Sequences of at most `2 · bucket` positions use full attention, except that a position
/// does not attend to itself unless it has no other visible key.
///
/// # Shapes
///
/// - query: `[batch, heads, seq, d_head]`
/// - value: `[batch, heads, seq, d_value]`
/// - result: `[batch, heads, seq, d_value]`
///
/// # Panics
///
/// If the shapes or the options do not match, `bucket` or `rounds` is zero, or the options have
/// ALiBi, a bias or dropout.
pub fn lsh(
    query: Tensor<4>,
    value: Tensor<4>,
    hashing: &Lsh,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "lsh attention";
    let [batch, heads, seq, _] = query.dims();
    let [value_batch, value_heads, value_seq, _] = value.dims();
    assert!(
        [value_batch, value_heads, value_seq] == [batch, heads, seq],
        "{op}: the queries are the keys, so value must be [batch = {batch}, heads = {heads}, \
         seq = {seq}, d_value] to fit query {:?}, got {:?}",
        query.dims(),
        value.dims(),
    );
    let shape = AttentionShape::from_tensors(op, &query, &query, &value);
    check(op, [query.dtype(), query.dtype(), value.dtype()]);
    self::hashing::check(hashing, op);
    options.check(op, &shape);
    reject_position_options(op, options);

    // Rounded once, at the end.
    let stored = query.dtype();
    let [query, value] = [query, value].map(widen);
    let key = normalize_rows(query.clone());
    let tensors = [query, key, value];
    let context = attend(op, tensors, hashing, options, &shape);
    narrow(context, stored)
}

/// Attention of queries, normalised keys and values, sorted on the device or by the host.
fn attend(
    op: &str,
    tensors: [Tensor<4>; 3],
    hashing: &Lsh,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    #[cfg(any(feature = "cube", feature = "tch"))]
    if let Some(layout) = DeviceLayout::new(op, hashing, &tensors[0], &options.pattern, shape) {
        return device::attend(tensors, layout, options);
    }
    attend_by_host(op, tensors, hashing, options, shape)
}

/// LSH attention with a plan or a layout that is computed on the host.
fn attend_by_host(
    op: &str,
    tensors: [Tensor<4>; 3],
    hashing: &Lsh,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Tensor<4> {
    let query = &tensors[0];
    let visibility = Visibility::from_pattern(op, &options.pattern, shape, &query.device());
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    if let Some(options) = gather_options(query, &tensors[2], options, shape) {
        let plan = gathered::gather_plan(hashing, query, &visibility);
        return flash_gathered(op, tensors, &options, Rule::Full, plan.into());
    }
    let ChunkLayout { chunks, rounds } = ChunkLayout::new(hashing, query, &visibility);
    let rows = tensors.map(|tensor| {
        let [batch, heads, seq, width] = tensor.dims();
        tensor.reshape([batch * heads * seq, width])
    });
    let parts: Vec<FlashOutput> = rounds
        .into_iter()
        .map(|round| attend_round(&rows, round, chunks, shape, options))
        .collect();
    match parts.as_slice() {
        [part] => part.context.clone(),
        parts => merge(parts).context,
    }
}

/// The options for gathered tiles, if there are kernels for these.
///
/// LibTorch's on CUDA need finite values and scores of ordinary size. Since this cannot be found out
/// later, when only the tiles are known, it is checked here; the host waits for the check.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
fn gather_options(
    query: &Tensor<4>,
    value: &Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
) -> Option<AttentionOptions> {
    let options = options.clone().with_pattern(Pattern::Full);
    if zoo_kernels::is_on_host(query) {
        return Some(options);
    }
    if !supports_gather([query, query, value], &options) {
        return None;
    }
    // Keys have a norm of 1.
    let scale = options.scale.unwrap_or(shape.default_scale()).abs();
    let max_score = || scale * (shape.d_head as f64).sqrt() * max_abs(query);
    let is_ordinary = options.assume_finite || max_score() <= MAX_SCORE && is_finite(value);
    is_ordinary.then_some(AttentionOptions {
        assume_finite: true,
        ..options
    })
}

/// Scores up to this have enough precision in a log-sum-exp.
#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
const MAX_SCORE: f64 = 1000.0;

/// Panics if an option depends on positions, which are permuted here.
fn reject_position_options(op: &str, options: &AttentionOptions) {
    let drops = |dropout: &crate::Dropout| dropout.probability > 0.0;
    for (name, is_set) in [
        ("ALiBi", options.alibi.is_some()),
        ("a bias", options.has_bias()),
        ("a score function", options.score_mod.is_some()),
        ("dropout", options.dropout.as_ref().is_some_and(drops)),
    ] {
        assert!(
            !is_set,
            "{op}: {name} is not supported, since it sorts positions by their hashes"
        );
    }
}

/// The mask of the queries `rows`, `[batch, heads, rows, seq]`: all keys that are in the same
/// chunks in no round, and those that the pattern of the options masks.
pub(crate) fn lsh_mask(
    op: &str,
    hashing: &Lsh,
    query: &Tensor<4>,
    options: &AttentionOptions,
    rows: &[usize],
) -> Tensor<4, Bool> {
    self::hashing::check(hashing, op);
    reject_position_options(op, options);
    let shape = AttentionShape::from_tensors(op, query, query, query);
    let [batch, heads, _, seq] = shape.scores();
    let visibility = Visibility::from_pattern(op, &options.pattern, &shape, &query.device());
    let layout = ChunkLayout::new(hashing, query, &visibility);
    let mut mask = vec![true; batch * heads * rows.len() * seq];
    for (index, mask) in mask.chunks_exact_mut(seq).enumerate() {
        let (head, row) = (index / rows.len(), rows[index % rows.len()]);
        for key in layout.visible_keys(head * seq + row) {
            mask[key % seq] = false;
        }
    }
    let mask = TensorData::new(mask, [batch, heads, rows.len(), seq]);
    Tensor::from_data(mask, &query.device())
}

/// Rows divided by their Euclidean norm; rows of zeros are unchanged.
pub(crate) fn normalize_rows(rows: Tensor<4>) -> Tensor<4> {
    #[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
    if zoo_kernels::is_on_host(&rows) && rows.dtype() == DType::F32 {
        let rows = rows.into_dispatch();
        return Tensor::from_dispatch(<Dispatch as NormalizeRows>::normalize_rows(rows));
    }
    let squares = rows.clone().square().sum_dim(3);
    // The square root is not differentiable at zero.
    let is_zero = squares.clone().equal_elem(0.0);
    rows.div(squares.mask_fill(is_zero, 1.0).sqrt())
}

/// Attention within the chunks of one round.
fn attend_round(
    [query, key, value]: &[Tensor<2>; 3],
    round: Round,
    chunks: Chunks,
    shape: &AttentionShape,
    options: &AttentionOptions,
) -> FlashOutput {
    let Chunks { count, size } = chunks;
    let (heads, device) = (shape.batch * shape.heads, query.device());
    let index = |rows: &[i32]| Tensor::<1, Int>::from_ints(rows, &device);
    let order = index(&round.rows);
    let sort = |rows: &Tensor<2>| {
        let [_, width] = rows.dims();
        let sorted = rows.clone().select(0, order.clone());
        sorted.reshape([heads, count, size, width])
    };
    // Chunks become the batch dimension.
    let to_batch = |tensor: Tensor<4>| {
        let [_, _, seq, width] = tensor.dims();
        tensor.reshape([heads * count, 1, seq, width])
    };
    let mask = TensorData::new(round.mask, [heads * count, 1, size, chunks.keys()]);
    let mask = Tensor::<4, Bool>::from_data(mask, &device);
    let part = flash_with_log_sum_exp(
        to_batch(sort(query)),
        to_batch(with_previous_chunk(sort(key))),
        to_batch(with_previous_chunk(sort(value))),
        &options.clone().with_pattern(Pattern::Dense(mask)),
    );
    let slot_of = index(&round.slot_of);
    let unsort = |tensor: Tensor<4>| {
        let [.., width] = tensor.dims();
        tensor
            .reshape([heads * count * size, width])
            .select(0, slot_of.clone())
            .reshape([shape.batch, shape.heads, shape.seq_q, width])
    };
    FlashOutput {
        context: unsort(part.context),
        log_sum_exp: unsort(part.log_sum_exp),
    }
}

/// Prepends to each chunk of `[heads, chunks, size, width]` the previous one, if there is another.
fn with_previous_chunk<K: Basic>(chunks: Tensor<4, K>) -> Tensor<4, K> {
    let [_, count, ..] = chunks.dims();
    if count == 1 {
        return chunks;
    }
    let last = chunks.clone().slice_dim(1, count - 1..count);
    let others = chunks.clone().slice_dim(1, 0..count - 1);
    let previous = Tensor::cat(vec![last, others], 1);
    Tensor::cat(vec![previous, chunks], 2) // [heads, chunks, 2 size, width]
}
