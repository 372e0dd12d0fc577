//! Kimi delta attention: the gated delta rule with a decay for each row of the state.
//!
//! ```text
//! S_t = (I - b_t k_t k_tᵀ) diag(a_t) S_(t-1) + b_t k_t v_tᵀ
//! ```
//!
//! Kimi Team, [Kimi Linear](https://arxiv.org/abs/2510.26692), 2025.

use zoo_spec::Kda;

use super::recurrence::{Decay, Recurrence, Strength};
use crate::scan::Update;

impl Recurrence for Kda {
    const OP: &'static str = "Kimi delta attention";
    const UPDATE: Update = Update::Delta;
    const DECAY: Decay = Decay::RatePerRow;
    const STRENGTH: Strength = Strength::Sigmoid;

    fn head_norm(&self) -> bool {
        self.head_norm
    }

    fn short_conv(&self) -> Option<usize> {
        self.short_conv
    }
}
