//! What a call computes with, forward and backward.

use std::ops::Range;

use crate::flash::spread::Spread;
use crate::pattern::TilePlan;
use crate::pattern::rule::Rule;
use crate::{AttentionShape, Dropout};

/// What one call computes with.
pub(crate) struct Call<'a> {
    pub(crate) shape: AttentionShape,
    /// Which tiles anybody sees.
    pub(crate) plan: &'a TilePlan,
    /// Who sees whom in them.
    pub(crate) rule: &'a Rule,
    /// A mask that hides more: a byte a place, zero where seen.
    pub(crate) hidden: Option<Spread<'a, u8>>,
    pub(crate) scale: f32,
    /// What they are kept within.
    pub(crate) softcap: Option<f32>,
    /// For each head, what scores lose with the distance.
    pub(crate) alibi: Option<&'a [f32]>,
    pub(crate) bias: Option<Spread<'a, f32>>,
    pub(crate) dropout: Option<Dropout>,
    /// `[batch, heads, seq_q, d_head]`
    pub(crate) query: &'a [f32],
    /// `[batch, kv_heads, seq_k, d_head]`
    pub(crate) key: Heads<'a>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub(crate) value: Heads<'a>,
}

/// Keys or values, head after head: the first rows of a larger room, perhaps, as a cache
/// has them.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub(crate) numbers: &'a [f32],
    /// Numbers from one head to the next.
    pub(crate) apart: usize,
}

impl<'a> Heads<'a> {
    /// The rows of a head, of all examples counted, which are so many numbers.
    #[inline(always)]
    pub(super) fn head(&self, head: usize, numbers: usize) -> &'a [f32] {
        &self.numbers[head * self.apart..][..numbers]
    }
}

impl Call<'_> {
    /// Whether a tile that is seen as a whole has its products for scores.
    pub(super) fn is_plain(&self) -> bool {
        self.softcap.is_none()
            && self.alibi.is_none()
            && self.bias.is_none()
            && self.hidden.is_none()
    }

    /// Whether a weight of a tile may be zero because its key is hidden: by the pattern, by a
    /// mask, or by a bias of minus infinity or any other large negative constant.
    pub(super) fn may_hide(&self, tile: &Tile) -> bool {
        !tile.is_whole || self.hidden.is_some() || self.bias.is_some()
    }

    /// Which of up to 64 queries of `[example, head]` see a key.
    pub(super) fn seen(
        &self,
        [example, head]: [usize; 2],
        queries: Range<usize>,
        key: usize,
    ) -> u64 {
        let mut seen = self.rule.seen(&self.shape, example, queries.clone(), key);
        if let Some(hidden) = self.hidden {
            for (bit, query) in queries.enumerate() {
                if hidden.at([example, head, query, key]) != 0 {
                    seen &= !(1 << bit);
                }
            }
        }
        seen
    }
}

/// Some queries of one head against some keys.
pub(super) struct Tile {
    pub(super) example: usize,
    pub(super) head: usize,
    pub(super) queries: Range<usize>,
    pub(super) keys: Range<usize>,
    /// Nothing in it is hidden.
    pub(super) is_whole: bool,
}

/// What the backward pass knows besides the call.
#[derive(Clone, Copy)]
pub(crate) struct Upstream<'a> {
    /// `[batch, heads, seq_q, d_value]`
    pub(crate) context: &'a [f32],
    /// `[batch, heads, seq_q, 2]`: what [`forward`](super::forward) returned beside the context.
    pub(crate) stats: &'a [f32],
    /// `[batch, heads, seq_q, d_value]`: the gradient that arrives at the context.
    pub(crate) d_context: &'a [f32],
    /// `[batch, heads, seq_q]`: the gradient that arrives at the log-sum-exp, if any.
    pub(crate) d_log_sum_exp: Option<&'a [f32]>,
}

/// Where a task of the backward pass adds its gradients.
pub(super) struct Out<'a> {
    pub(super) d_query: &'a mut [f32],
    pub(super) d_key: &'a mut [f32],
    pub(super) d_value: &'a mut [f32],
}

/// Numbers of a row in the statistics of the softmax: its maximum and its sum.
pub(crate) const STATS: usize = 2;
