//! Native sparse attention (NSA): a gated sum of three branches.
//!
//! ```text
//! A_cmp = softmax attention to the mean keys and values of blocks
//! A_slc = softmax attention to the keys of a few blocks: the own one, and those with the largest weights in A_cmp,
//!         summed over the query heads that share a key and value head
//! A_win = softmax attention to the keys of a window
//! o_i   = g_i1 A_cmp + g_i2 A_slc + g_i3 A_win           g_i = sigmoid(x_i·W + b) for each query head
//! ```
//!
//! With a causal pattern, `A_cmp` has the blocks up to the query's position that are complete, and only blocks
//! before the own one are selected. The selection has no gradient.
//!
//! Yuan et al., [Native Sparse Attention](https://arxiv.org/abs/2502.11089), 2025.

mod means;

use std::ops::Range;

use burn::nn::LinearConfig;
use burn::tensor::{Device, Tensor, activation};
use zoo_kernels::{Activation, linear};
use zoo_spec::NativeSparse;

use self::means::Means;
use super::block_selection::{
    BlockSelection, Visibility, attend_to_blocks, check_sizes_and_options,
};
use super::gates::initial_branch_gates;
use super::standard::{apply_score_options, dot_products, softmax};
use super::{Attention, Call, Gates, HeadSizes, Inputs, MechanismParams, Params};
use crate::analysis::weights::WeightFunction;
use crate::precision::{narrow, widen};
use crate::scan::KeyMask;
use crate::shape::{pad_rows, select_indices, split_heads};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern, flash};

/// Number of branches, and so of gates of a query head.
const BRANCHES: usize = 3;

impl Attention for NativeSparse {
    fn init_params(&self, sizes: HeadSizes, device: &Device) -> MechanismParams {
        let projection = LinearConfig::new(sizes.d_input, BRANCHES * sizes.heads);
        MechanismParams {
            branches: Some(projection.init(device)),
            ..MechanismParams::default()
        }
    }

    fn gates(&self, params: &MechanismParams, sizes: HeadSizes, x: Tensor<3>) -> Option<Gates> {
        let projection = params.branches.as_ref()?;
        let logits = linear(projection, Activation::Identity, x); // [batch, seq, heads * 3]
        let gates = activation::sigmoid(widen(logits));
        Some(Gates {
            branches: Some(split_heads(gates, sizes.heads)),
            ..Gates::default()
        })
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let gates = gates_of(&inputs);
        let Inputs {
            query, key, value, ..
        } = inputs;
        native_sparse(query, key, value, gates, self, call.options).into()
    }

    fn weight_fn(&self, inputs: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Branches(*self, gates_of(inputs))
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        let selected = self.top_k.saturating_mul(self.block_size).min(shape.seq_k);
        let window = self.window.min(shape.seq_k);
        let keys = shape.seq_k.div_ceil(self.block_size) + selected + window;
        let row = keys * (shape.d_head + shape.d_value);
        2.0 * (shape.heads * shape.seq_q * row) as f64
    }
}

/// The gates of a layer, or their initial values.
fn gates_of(inputs: &Inputs) -> Tensor<4> {
    let [batch, heads, ..] = inputs.query.dims();
    let [_, _, seq_k, _] = inputs.key.dims();
    let of_layer = inputs.gates.clone().and_then(|gates| gates.branches);
    let dims = [batch, heads, seq_k, BRANCHES];
    of_layer.unwrap_or_else(|| initial_branch_gates(dims, &inputs.query))
}

const OP: &str = "native sparse attention";

/// Native sparse attention with the sizes of a config. All inputs have gradients.
///
/// Blocks start at the first key; the last one may be shorter. Queries are aligned with the last key; those
/// before the first key have no gates, and their result is zero. The means of a block are those over the keys that are not masked by
/// key lengths or key padding. Half-precision tensors are computed in `f32`.
///
/// # Shapes
///
/// As for [`flash`](crate::flash()), and
///
/// - gates: `[batch, heads, seq_k, 3]`: the factors of the branches at each position
///
/// # Panics
///
/// If the shapes do not match, or queries, keys and values do not have the same dtype of at most 32 bits; if
/// `block_size` or `top_k` is zero; if the pattern is not built from full, causal, key lengths and key padding;
/// if the options have ALiBi, a bias or dropout.
pub fn native_sparse(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    gates: Tensor<4>,
    config: &NativeSparse,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let stored = query.dtype();
    let gates = gates_of_queries(OP, gates, &shape);
    let [query, key, value] = [query, key, value].map(widen);
    let call = SparseCall::new(OP, config, options, &shape, &query.device());
    let [key, value] = [key, value].map(|rows| call.key_mask.clear(rows));
    let key_means = call.means.of(key.clone(), &call.visibility);
    let value_means = call.means.of(value.clone(), &call.visibility);
    let selection = call.select(&query, &key_means);
    let tensors = [query, key, value];
    let [query, key, value] = tensors.clone();
    let branches = [
        (call.means).attend([query.clone(), key_means, value_means], &shape, options),
        attend_to_blocks(OP, tensors, &selection, &call.visibility, options),
        flash(query, key, value, &call.window_options()),
    ];
    let gated = branches.into_iter().enumerate();
    let gated = gated.map(|(branch, context)| context * gate(&gates, branch));
    let context = gated.reduce(Tensor::add).expect("three branches");
    narrow(context, stored)
}

/// The weights of the queries `rows`, `[batch, heads, rows, seq_k]`.
pub(crate) fn native_sparse_weights(
    op: &str,
    config: &NativeSparse,
    [query, key]: [&Tensor<4>; 2],
    gates: &Tensor<4>,
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4> {
    let (stored, device) = (query.dtype(), &query.device());
    let gates = gates_of_queries(op, gates.clone(), shape);
    let gates = select_indices(gates, 2, rows);
    let call = SparseCall::new(op, config, options, shape, device);
    let [query, key] = [query, key].map(|rows| widen(rows.clone()));
    let key = call.key_mask.clear(key);
    let key_means = call.means.of(key.clone(), &call.visibility);
    let selection = call.select(&query, &key_means);
    let query = select_indices(query, 2, rows);
    let of_means = call.scores(query.clone(), key_means, rows);
    let of_means = softmax(of_means, call.means.mask(&call.visibility, rows, device));
    let of_keys = call.scores(query, key, rows);
    let selected = selection.dense_mask(&call.visibility, rows, device);
    let window = call.window_options().pattern;
    let window = window.dense_mask_rows(op, shape, rows, device);
    let weights = call
        .means
        .spread(of_means, &call.visibility, &call.key_mask)
        * gate(&gates, 0)
        + softmax(of_keys.clone(), [selected]) * gate(&gates, 1)
        + softmax(of_keys, window) * gate(&gates, 2);
    narrow(weights, stored)
}

/// The gates of a branch, `[batch, heads, queries, 1]`.
fn gate(gates: &Tensor<4>, branch: usize) -> Tensor<4> {
    gates.clone().slice_dim(3, branch..branch + 1)
}

/// The gates of the positions of the queries, in `f32`; zero before the first key.
fn gates_of_queries(op: &str, gates: Tensor<4>, shape: &AttentionShape) -> Tensor<4> {
    let [batch, heads, seq_q, seq_k] = shape.scores();
    let expected = [batch, heads, seq_k, BRANCHES];
    assert!(
        gates.dims() == expected,
        "{op}: the gates must be [batch, heads, seq_k, 3] = {expected:?}, got {:?}",
        gates.dims()
    );
    let gates = widen(gates).slice_dim(2, seq_k.saturating_sub(seq_q)..seq_k);
    pad_rows(gates, [seq_q.saturating_sub(seq_k), 0], 0.0)
}

/// What the branches of a call share.
struct SparseCall<'a> {
    config: &'a NativeSparse,
    options: &'a AttentionOptions,
    shape: &'a AttentionShape,
    key_mask: KeyMask,
    visibility: Visibility<'a>,
    means: Means,
}

impl<'a> SparseCall<'a> {
    fn new(
        op: &str,
        config: &'a NativeSparse,
        options: &'a AttentionOptions,
        shape: &'a AttentionShape,
        device: &Device,
    ) -> Self {
        check_sizes_and_options(op, config.block_size, config.top_k, options);
        let key_mask = KeyMask::from_pattern(op, &options.pattern, shape, device);
        let visibility = Visibility::new(shape, &key_mask, config.block_size);
        Self {
            config,
            options,
            shape,
            means: Means::new(&visibility, &key_mask, config.block_size, device),
            key_mask,
            visibility,
        }
    }

    /// The options of the window.
    fn window_options(&self) -> AttentionOptions {
        let window = Pattern::window(self.config.window);
        self.options.restricted_to(window)
    }

    /// The scores of the queries `rows` and all keys or means.
    fn scores(&self, query: Tensor<4>, key: Tensor<4>, rows: &[usize]) -> Tensor<4> {
        let scale = self.options.scale.unwrap_or(self.shape.default_scale());
        let [_, _, seq_k, _] = key.dims();
        let shape = AttentionShape {
            seq_k,
            ..*self.shape
        };
        let scores = dot_products(query, key, scale, &shape);
        apply_score_options(scores, self.options, &shape, rows.iter().copied())
    }

    /// The blocks with the largest weights, the same for the query heads that share keys.
    fn select(&self, query: &Tensor<4>, key_means: &Tensor<4>) -> BlockSelection {
        let query = query.clone().detach();
        let key_means = key_means.clone().detach();
        let scores = |rows| self.importances(query.clone(), key_means.clone(), rows);
        BlockSelection::largest(
            self.shape.kv_heads,
            scores,
            &self.means.of_blocks,
            &self.visibility,
            self.config.top_k,
        )
    }

    /// The logarithms of the weights of the blocks for some queries, added up over query heads that share
    /// keys: `[batch, kv_heads, rows, blocks]`. Weights may underflow, logarithms do not.
    fn importances(&self, query: Tensor<4>, means: Tensor<4>, rows: Range<usize>) -> Tensor<4> {
        let [batch, kv_heads, blocks, _] = means.dims();
        let (group, count) = (self.shape.group(), rows.len());
        let indices: Vec<usize> = rows.clone().collect();
        let scores = self.scores(query.slice_dim(2, rows), means, &indices);
        if group == 1 {
            // The scores of a query have the same order as its weights.
            return scores;
        }
        let mask = (self.means).mask(&self.visibility, &indices, &scores.device());
        let dims = scores.dims();
        let scores = mask.into_iter().fold(scores, |scores, mask| {
            scores.mask_fill(mask.expand(dims), f32::MIN)
        });
        let max = scores.clone().max_dim(3);
        let sum = (scores.clone() - max.clone()).exp().sum_dim(3);
        let logarithms = scores - max - sum.log();
        // NaN in a query of one head does not affect the others.
        let is_nan = logarithms.clone().is_nan();
        let logarithms = logarithms.mask_fill(is_nan, f32::MIN);
        let logarithms = logarithms.reshape([batch, kv_heads, group, count * blocks]);
        let max = logarithms.clone().max_dim(2);
        let sum = (logarithms - max.clone()).exp().sum_dim(2);
        (max + sum.log()).reshape([batch, kv_heads, count, blocks])
    }
}
