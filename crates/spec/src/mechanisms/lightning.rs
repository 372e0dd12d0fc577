use super::Capabilities;
use crate::keys::{Range, Values};

mechanism! {
    /// Linear attention with a constant decay for each head, causal.
    #[about(time = "n", memory = "n", Different, "gated-linear.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = exp(-slope) S_{i-1} + k_i v_iᵀ, slope = 8 head / heads · (1 - depth)")]
    #[paper("Qin 2024", "https://arxiv.org/abs/2401.04658")]
    pub struct Lightning = "lightning" {
        /// Depth of the layer, as a fraction of all layers: states of deeper layers decay more slowly.
        depth: f64 = 0.0, small 0.25, Values::Number(Range::PROBABILITY);
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
    }

    capabilities: |_| Capabilities::recurrent()
}
