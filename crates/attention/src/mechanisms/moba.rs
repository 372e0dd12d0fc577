//! Mixture of block attention (MoBA): softmax over the keys of a few blocks.
//!
//! ```text
//! score_b = q_i · mean of the keys of block b
//! o_i     = Σ_j softmax_j(scale · q_i·k_j) v_j      j in the block of i, or in one of the k - 1 others with
//!                                                   the largest scores
//! ```
//!
//! With a causal pattern only blocks before the own one are candidates. The selection has no gradient. Each
//! query head selects for itself.
//!
//! Lu et al., [MoBA: Mixture of Block Attention for Long-Context LLMs](https://arxiv.org/abs/2502.13189), 2025.

use burn::tensor::{Bool, Tensor};
use zoo_spec::Moba;

use super::block_selection::{
    BlockMeans, BlockSelection, Visibility, attend_to_blocks, check_sizes_and_options,
};
use super::{Attention, Call, Inputs, Params};
use crate::analysis::weights::WeightFunction;
use crate::precision::{narrow, widen};
use crate::scan::{KeyMask, grouped_matmul};
use crate::{AttentionOptions, AttentionOutput, AttentionShape};

impl Attention for Moba {
    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        moba(query, key, value, self, call.options).into()
    }

    fn weight_fn(&self, _: &Inputs, _: &Params) -> WeightFunction {
        WeightFunction::Blocks(*self)
    }

    fn flops(&self, shape: &AttentionShape, _: &AttentionOptions) -> f64 {
        let keys = self.top_k.saturating_mul(self.block_size).min(shape.seq_k);
        let blocks = shape.seq_k.div_ceil(self.block_size);
        let row = blocks * shape.d_head + keys * (shape.d_head + shape.d_value);
        2.0 * (shape.heads * shape.seq_q * row) as f64
    }
}

const OP: &str = "block attention";

/// Mixture of block attention with the blocks of a config.
///
/// Blocks start at the first key; the last one may be shorter. Queries are aligned with the last key. The
/// mean of a block is that of the keys that are not masked by key lengths or key padding. Half-precision
/// tensors are computed in `f32`.
///
/// Shapes are those of [`flash`](crate::flash()).
///
/// # Panics
///
/// If the shapes do not match, or the tensors do not have the same dtype of at most 32 bits; if `block_size`
/// or `top_k` is zero; if the pattern is not built from full, causal, key lengths and key padding; if the
/// options have ALiBi, a bias or dropout.
pub fn moba(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    config: &Moba,
    options: &AttentionOptions,
) -> Tensor<4> {
    let shape = options.check_call(OP, [&query, &key, &value]);
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let (selection, visibility, key_mask) = select(OP, config, [&query, &key], options, &shape);
    let [key, value] = [key, value].map(|rows| key_mask.clear(rows));
    let context = attend_to_blocks(OP, [query, key, value], &selection, &visibility, options);
    narrow(context, stored)
}

/// The selected blocks of each query, and the keys that it may attend to.
fn select<'a>(
    op: &str,
    config: &Moba,
    [query, key]: [&Tensor<4>; 2],
    options: &AttentionOptions,
    shape: &'a AttentionShape,
) -> (BlockSelection, Visibility<'a>, KeyMask) {
    check_sizes_and_options(op, config.block_size, config.top_k, options);
    let key_mask = KeyMask::from_pattern(op, &options.pattern, shape, &query.device());
    let visibility = Visibility::new(shape, &key_mask, config.block_size);
    let [query, key] = [query, key].map(|rows| widen(rows.clone().detach()));
    let means = BlockMeans::new(&visibility, &query.device());
    let of_keys = means.of(key_mask.clear(key), &visibility).swap_dims(2, 3);
    let scores = |rows| grouped_matmul(query.clone().slice_dim(2, rows), of_keys.clone());
    let (heads, top_k) = (shape.heads, config.top_k);
    let selection = BlockSelection::largest(heads, scores, &means, &visibility, top_k);
    (selection, visibility, key_mask)
}

/// The mask of the queries `rows`, `[batch, heads, rows, seq_k]`.
pub(crate) fn moba_mask(
    op: &str,
    config: &Moba,
    [query, key]: [&Tensor<4>; 2],
    options: &AttentionOptions,
    shape: &AttentionShape,
    rows: &[usize],
) -> Tensor<4, Bool> {
    let (selection, visibility, _) = select(op, config, [query, key], options, shape);
    selection.dense_mask(&visibility, rows, &query.device())
}
