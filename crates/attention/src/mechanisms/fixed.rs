//! The "fixed" pattern: a query's own block and the summary columns of every block.
//!
//! Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
//!
//! ```text
//! query i attends to key j    if i / block = j / block, or j mod block >= block - summary
//! ```
//!
//! With a block size near `sqrt(n)`, time grows as `summary · n · sqrt(n)`. On wgpu, Vulkan and CUDA,
//! this holds for a full or causal pattern, as many queries as keys, and no ALiBi, bias, dropout or
//! score function; with LibTorch on CUDA, without a bias, a softcap or a score function. Otherwise
//! the result is the same, and time grows as `n²`.

use std::sync::Arc;

use burn::tensor::Tensor;
use zoo_spec::Fixed;

use super::strided::{causal_if_separable, consecutive_queries, key_range, rounded_sqrt};
use super::{Attention, Call, Inputs};
use crate::flash::{
    flash, flash_gathered, flash_with_log_sum_exp, flash_with_rule, merge, supports_gather,
};
use crate::memo::Memo;
use crate::pattern::BlockCausal;
use crate::pattern::gather::{GatherPlan, Pass};
use crate::pattern::rule::Rule;
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, AttentionOutput, AttentionShape, Pattern};

impl Attention for Fixed {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        let block = self.block_size.unwrap_or(rounded_sqrt(seq_k));
        Some(Pattern::fixed(block, self.summary))
    }

    fn is_flash(&self) -> bool {
        false
    }

    fn forward(&self, inputs: Inputs, call: Call<'_>) -> AttentionOutput {
        let Inputs {
            query, key, value, ..
        } = inputs;
        let block = self.block_size.unwrap_or(rounded_sqrt(key.dims()[2]));
        fixed(query, key, value, block, self.summary, call.options).into()
    }
}

/// Attention to a query's own block of `block` positions and to the last `summary` positions of
/// every block.
///
/// It computes `seq · (block + summary · seq / block)` scores; on wgpu, Vulkan and CUDA all of
/// them with ALiBi, a bias, dropout, a score function, a pattern that is not full or causal, or fewer
/// queries than keys.
///
/// Shapes and panics are those of [`flash`](crate::flash()); it also panics if the block size is
/// zero.
pub fn fixed(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    block: usize,
    summary: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let op = "fixed attention";
    let shape = options.check_call(op, [&query, &key, &value]);
    assert!(block > 0, "{op}: a block size must be at least 1, got 0");
    let summary = summary.min(block);
    let is_sparse = block < shape.seq_k && summary > 0;
    if is_sparse && supports_gather([&query, &key, &value], options) {
        let plan = gather_plan(op, [block, summary], &options.pattern, &shape);
        let tensors = [query, key, value];
        let rule = Pattern::fixed(block, summary).rule();
        return flash_gathered(op, tensors, options, rule, plan);
    }
    let is_causal = causal_if_separable(options, &shape);
    let Some(is_causal) = is_causal.filter(|_| is_sparse) else {
        let options = options.restricted_to(Pattern::fixed(block, summary));
        return flash(query, key, value, &options);
    };

    // Rounded once, after merging.
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let columns = [&key, &value].map(|tensor| summary_columns(tensor, block, summary, is_causal));
    let own = options.restricted_to(Pattern::Block { size: block });
    let own = flash_with_log_sum_exp(query.clone(), key, value, &own);

    // The summary columns of the query's own block are in `own` already.
    let other_blocks = Rule::BlockCausal(BlockCausal {
        block_q: block,
        block_k: summary,
        is_causal,
    });
    let options = options.clone().with_pattern(Pattern::Full);
    let [key, value] = columns;
    let others = flash_with_rule(query, key, value, &options, other_blocks);
    narrow(merge(&[own, others]).context, stored)
}

/// The summary columns and the blocks of the queries, in one pass.
fn gather_plan(
    op: &str,
    [block, summary]: [usize; 2],
    pattern: &Pattern,
    shape: &AttentionShape,
) -> Arc<GatherPlan> {
    static MEMO: Memo<([usize; 2], Rule, [usize; 3]), GatherPlan> = Memo::new();
    pattern.check(op, shape);
    let AttentionShape {
        batch,
        seq_q,
        seq_k,
        ..
    } = *shape;
    let sizes = [batch, seq_q, seq_k];
    MEMO.get(([block, summary], pattern.rule(), sizes), |(_, rule, _)| {
        let size = block as i64;
        let groups = consecutive_queries(shape, |positions| {
            let start = positions.start.div_euclid(size) * size;
            let end = (positions.end - 1).div_euclid(size) * size + size;
            let own = key_range(shape, start..end);
            let is_column = |key: &u32| *key as usize % block >= block - summary;
            let columns = (0..seq_k as u32).filter(|key| is_column(key) && !own.contains(key));
            columns.chain(own.clone()).collect()
        });
        let pass = Pass {
            groups,
            rule: rule.clone().and(Pattern::fixed(block, summary).rule()),
            excludes_own_position: false,
        };
        GatherPlan::from_passes(shape, &[pass])
    })
}

/// The gathered summary columns of keys or values, without those that no other block attends to:
/// `[batch, heads, at most blocks * summary, d]`.
fn summary_columns(tensor: &Tensor<4>, block: usize, summary: usize, is_causal: bool) -> Tensor<4> {
    let [batch, heads, seq, d] = tensor.dims();
    // All but the last block, which may be incomplete.
    let blocks = seq.div_ceil(block) - 1;
    let last_block = blocks * block;
    let before = tensor
        .clone()
        .slice_dim(2, 0..last_block)
        .reshape([batch, heads, blocks, block, d])
        .slice_dim(3, block - summary..block)
        .reshape([batch, heads, blocks * summary, d]);
    let first = last_block + block - summary;
    // No block comes after the last one.
    if is_causal || first >= seq {
        return before;
    }
    Tensor::cat(vec![before, tensor.clone().slice_dim(2, first..seq)], 2)
}
