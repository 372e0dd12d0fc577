//! The gated delta rule: the [delta rule](mod@super::delta) on a state that decays.
//!
//! ```text
//! S_t = a_t (I - b_t k_t k_tᵀ) S_(t-1) + b_t k_t v_tᵀ        a_t = exp(-rate · softplus(w · x_t + b))
//! ```
//!
//! Yang et al., [Gated Delta Networks](https://arxiv.org/abs/2412.06464), 2024.

use zoo_spec::GatedDelta;

use super::recurrence::{Decay, Recurrence, Strength};
use crate::scan::Update;

impl Recurrence for GatedDelta {
    const OP: &'static str = "gated delta rule";
    const UPDATE: Update = Update::Delta;
    const DECAY: Decay = Decay::Rate;
    const STRENGTH: Strength = Strength::Sigmoid;

    fn head_norm(&self) -> bool {
        self.head_norm
    }

    fn short_conv(&self) -> Option<usize> {
        self.short_conv
    }
}
