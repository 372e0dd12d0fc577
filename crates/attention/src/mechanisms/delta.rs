//! The delta rule: a position replaces what the state returns for its key.
//!
//! ```text
//! S_t = S_(t-1) + b_t k_t (v_t - k_tᵀ S_(t-1))ᵀ        b_t = sigmoid(w · x_t)
//! ```
//!
//! with queries and keys of length 1. Schlag et al., [Linear Transformers Are Secretly Fast Weight
//! Programmers](https://arxiv.org/abs/2102.11174), 2021; in chunks: Yang et al.,
//! [DeltaNet](https://arxiv.org/abs/2406.06484), 2024.

use burn::tensor::Tensor;
use zoo_spec::Delta;

use super::Gates;
use super::recurrence::{Decay, Recurrence, Strength};
use crate::AttentionOptions;
use crate::scan::{Update, gated};

impl Recurrence for Delta {
    const OP: &'static str = "delta rule";
    const UPDATE: Update = Update::Delta;
    const DECAY: Decay = Decay::None;
    const STRENGTH: Strength = Strength::Sigmoid;

    fn head_norm(&self) -> bool {
        self.head_norm
    }

    fn short_conv(&self) -> Option<usize> {
        self.short_conv
    }
}

/// The delta rule, on a state that decays if there are decays. Queries and keys are divided by their
/// length. All inputs have gradients.
///
/// ```text
/// S_t = (I - strength_t k_t k_tᵀ) diag(exp(log_decay_t)) S_(t-1) + strength_t k_t v_tᵀ
/// ```
///
/// Scale, shapes and panics are those of
/// [`gated_linear`](crate::mechanisms::gla::gated_linear).
pub fn delta_rule(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    log_decay: Option<Tensor<4>>,
    strength: Tensor<4>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let [.., d_head] = query.dims();
    let gates = Gates {
        log_decay,
        strength: Some(strength),
        branches: None,
    };
    let scale = options.scale.unwrap_or(1.0 / (d_head as f64).sqrt());
    gated(
        Delta::OP,
        [query, key, value],
        &gates,
        Update::Delta,
        scale,
        options,
    )
}
