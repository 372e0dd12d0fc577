//! The state space model of Mamba-2 (SSD): a decay for each head and position.
//!
//! ```text
//! S_t = exp(-rate · Δ_t) S_(t-1) + Δ_t k_t v_tᵀ        Δ_t = softplus(w · x_t + b)
//! ```
//!
//! Keys are `B` of the paper, queries `C`, and values its `x`.
//!
//! Dao and Gu, [Transformers are SSMs](https://arxiv.org/abs/2405.21060), 2024.

use zoo_spec::Mamba2;

use super::recurrence::{Decay, Recurrence, Strength};
use crate::scan::Update;

impl Recurrence for Mamba2 {
    const OP: &'static str = "mamba2";
    const UPDATE: Update = Update::Add;
    const DECAY: Decay = Decay::Rate;
    const STRENGTH: Strength = Strength::StepSize;
    const IS_UNSCALED: bool = true;

    fn head_norm(&self) -> bool {
        self.head_norm
    }

    fn short_conv(&self) -> Option<usize> {
        self.short_conv
    }
}
