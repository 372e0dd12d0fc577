//! The own block, and a few places of every block that sum it up.
//!
//! Child et al., [Sparse Transformers](https://arxiv.org/abs/1904.10509), 2019.
//!
//! ```text
//! query i sees key j    if i / block = j / block, or j mod block >= block - summary
//! ```
//!
//! With blocks near the root of the length, time grows like `summary · n · sqrt(n)`: for a full or
//! causal pattern, as many queries as keys, and scores that do not depend on the position. With key
//! lengths or another pattern, ALiBi, a bias or dropout the result is the same, and time grows like
//! `n²`.

use burn::tensor::Tensor;
use zoo_spec::Fixed;

use super::strided::rounded_sqrt;
use super::{Attention, Inputs, Output, Params};
use crate::flash::{flash, flash_by_rule, flash_with_log_sum_exp, merge};
use crate::pattern::rule::Rule;
use crate::pattern::{Stairs, Steps};
use crate::precision::{narrow, widen};
use crate::{AttentionOptions, Pattern};

impl Attention for Fixed {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        let block = self.block.unwrap_or(rounded_sqrt(seq_k));
        Some(Pattern::fixed(block, self.summary))
    }

    fn forward(&self, inputs: Inputs, _: &Params, options: &AttentionOptions) -> Output {
        let Inputs { query, key, value } = inputs;
        let block = self.block.unwrap_or(rounded_sqrt(key.dims()[2]));
        fixed(query, key, value, block, self.summary, options).into()
    }

    fn is_flash(&self) -> bool {
        false
    }
}

/// Attends to the own block of `block` places and to the last `summary` places of every
/// block.
///
/// With a full or causal pattern, as many queries as keys, and scores that do not depend
/// on the place, it takes `seq · (block + summary · seq / block)` products; else the same
/// result takes all of them.
///
/// # Shapes
///
/// - query: `[batch, heads, seq_q, d_head]`
/// - key: `[batch, kv_heads, seq_k, d_head]`
/// - value: `[batch, kv_heads, seq_k, d_value]`
/// - result: `[batch, heads, seq_q, d_value]`
///
/// # Panics
///
/// If the tensors or the options do not fit together, or a block has no places.
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
    assert!(block > 0, "{op}: a block must have places, got 0");
    let summary = summary.min(block);
    let steps = match options.pattern {
        Pattern::Full => Some(Steps::Others),
        Pattern::Causal => Some(Steps::Before),
        _ => None,
    };
    // Scores that depend on the place would have to be brought together with the keys.
    let is_free = options.alibi.is_none() && options.bias.is_none() && options.dropout.is_none();
    let is_far = block < shape.seq_k && summary > 0;
    let Some(steps) = steps.filter(|_| is_free && is_far && shape.seq_q == shape.seq_k) else {
        let seen = Pattern::fixed(block, summary);
        let pattern = options.pattern.clone().and(seen);
        return flash(query, key, value, &options.clone().with_pattern(pattern));
    };

    // Rounded once, not part by part.
    let stored = query.dtype();
    let [query, key, value] = [query, key, value].map(widen);
    let summaries = [&key, &value].map(|tensor| summaries(tensor, block, summary, steps));
    let own = Pattern::Block { size: block };
    let own = options
        .clone()
        .with_pattern(options.pattern.clone().and(own));
    let own = flash_with_log_sum_exp(query.clone(), key, value, &own);

    // The summary of its own block a query has seen already.
    let stairs = Rule::Stairs(Stairs {
        rise: block,
        run: summary,
        seen: steps,
    });
    let options = options.clone().with_pattern(Pattern::Full);
    let [key, value] = summaries;
    let others = flash_by_rule(query, key, value, &options, stairs);
    narrow(merge(&[own, others]).context, stored)
}

/// The last `summary` places of each block of keys or values that any other block sees,
/// side by side: `[batch, heads, at most blocks * summary, d]`.
fn summaries(tensor: &Tensor<4>, block: usize, summary: usize, steps: Steps) -> Tensor<4> {
    let [batch, heads, seq, d] = tensor.dims();
    // The last block, whole or cut short.
    let blocks = seq.div_ceil(block) - 1;
    let rest = blocks * block;
    let before = tensor
        .clone()
        .slice_dim(2, 0..rest)
        .reshape([batch, heads, blocks, block, d])
        .slice_dim(3, block - summary..block)
        .reshape([batch, heads, blocks * summary, d]);
    let first = rest + block - summary;
    match steps {
        // No block comes after the last.
        Steps::Before => before,
        Steps::Others if first >= seq => before,
        Steps::Others => Tensor::cat(vec![before, tensor.clone().slice_dim(2, first..seq)], 2),
    }
}
