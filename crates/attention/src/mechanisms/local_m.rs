//! A window of keys, queries and keys aligned at the start.
//!
//! Luong et al., [Effective Approaches to Attention-based Neural Machine
//! Translation](https://arxiv.org/abs/1508.04025), 2015: monotonic alignment. Query `t` attends to
//! the keys with `|j - t| <= window`. A [sliding window](zoo_spec::SlidingWindow) aligns the last
//! query with the last key instead; with as many queries as keys both are the same.

use burn::tensor::Tensor;
use zoo_spec::LocalM;

use super::{Attention, Retained};
use crate::{AttentionOptions, Pattern, flash};

impl Attention for LocalM {
    fn pattern(&self, _: usize) -> Option<Pattern> {
        Some(Pattern::Monotonic {
            window: self.window,
        })
    }

    fn retained(&self) -> Option<Retained> {
        Some(Retained::window(self.window))
    }

    fn step_pattern(&self, _: usize) -> Option<Pattern> {
        Some(Pattern::window(self.window))
    }
}

/// Attention to the keys at most `window` away from the key with the query's index. A query without
/// such a key gets zeros. Shapes and panics are those of [`flash`](crate::flash()).
pub fn local_monotonic(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    window: usize,
    options: &AttentionOptions,
) -> Tensor<4> {
    let options = options.restricted_to(Pattern::Monotonic { window });
    flash(query, key, value, &options)
}
