use super::Capabilities;
use crate::keys::{KERNEL, Presence, Values};

mechanism! {
    /// The state space model of Mamba-2: a decay for each head that depends on the input.
    #[about(time = "n", memory = "n", Different, "gated-linear.md")]
    #[formula("o_i = q_i·S_i, S_i = exp(-r Δ_i) S_{i-1} + Δ_i k_i v_iᵀ, Δ_i = softplus(x_i·w + b)")]
    #[paper("Dao 2024", "https://arxiv.org/abs/2405.21060")]
    pub struct Mamba2 = "mamba2" | "ssd" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
        /// Positions of a causal convolution with SiLU of queries, keys and values.
        #[serde(skip_serializing_if = "Option::is_none")]
        short_conv: Option<usize> = None, small None, KERNEL, Presence::Optional("none");
    }

    capabilities: |_| Capabilities::recurrent()
}
