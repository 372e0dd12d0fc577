use super::Capabilities;
use crate::keys::{KERNEL, Presence, Values};

mechanism! {
    /// The gated delta rule with a decay for each row of the state.
    #[about(time = "n", memory = "n", Different, "delta.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = (I - b_i k_i k_iᵀ) diag(a_i) S_{i-1} + b_i k_i v_iᵀ")]
    #[paper("Kimi Team 2025", "https://arxiv.org/abs/2510.26692")]
    pub struct Kda = "kda" | "kimi-delta" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
        /// Positions of a causal convolution with SiLU of queries, keys and values.
        #[serde(skip_serializing_if = "Option::is_none")]
        short_conv: Option<usize> = None, small None, KERNEL, Presence::Optional("none");
    }

    capabilities: |_| Capabilities::recurrent()
}
