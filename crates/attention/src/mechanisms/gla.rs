//! Gated linear attention: every row of the state decays at a rate that depends on the input.
//!
//! ```text
//! S_t = diag(a_t) S_(t-1) + k_t v_tᵀ        a_t = sigmoid(x_t W₁ W₂ + b)^(1/16)
//! ```
//!
//! Yang et al., [Gated Linear Attention Transformers with Hardware-Efficient
//! Training](https://arxiv.org/abs/2312.06635), 2023.

use burn::tensor::Tensor;
use zoo_spec::Gla;

use super::Gates;
use super::recurrence::{Decay, Recurrence, Strength};
use crate::AttentionOptions;
use crate::scan::{Update, gated};

impl Recurrence for Gla {
    const OP: &'static str = "gated linear attention";
    const UPDATE: Update = Update::Add;
    const DECAY: Decay = Decay::RootOfSigmoid;
    const STRENGTH: Strength = Strength::None;

    fn head_norm(&self) -> bool {
        self.head_norm
    }

    fn short_conv(&self) -> Option<usize> {
        self.short_conv
    }
}

/// A linear recurrence with decays and strengths, of which the states of Mamba-2 and gated linear
/// attention are cases. All inputs have gradients.
///
/// ```text
/// S_t = diag(exp(log_decay_t)) S_(t-1) + strength_t k_t v_tᵀ        context_t = scale · q_t · S_t
/// ```
///
/// The default scale is `1/sqrt(d_head)`. It is computed in chunks by tensor operations, in `f32`;
/// half-precision tensors are rounded once, at the end. A masked key adds nothing to the state, which
/// still decays.
///
/// # Shapes
///
/// As for [`flash`](crate::flash()), and
///
/// - log_decay: `[batch, kv_heads, seq_k, 1]`, or `d_head` instead of 1; at most 0
/// - strength: `[batch, kv_heads, seq_k, 1]`
///
/// # Panics
///
/// As [`retention`](crate::mechanisms::retention::retention()), and if the gates have other shapes.
pub fn gated_linear(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    log_decay: Tensor<4>,
    strength: Option<Tensor<4>>,
    options: &AttentionOptions,
) -> Tensor<4> {
    let [.., d_head] = query.dims();
    let gates = Gates {
        log_decay: Some(log_decay),
        strength,
        branches: None,
    };
    let scale = options.scale.unwrap_or(1.0 / (d_head as f64).sqrt());
    gated(
        Gla::OP,
        [query, key, value],
        &gates,
        Update::Add,
        scale,
        options,
    )
}
