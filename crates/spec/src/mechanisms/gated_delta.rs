use super::Capabilities;
use crate::keys::{KERNEL, Presence, Values};

mechanism! {
    /// The delta rule on a state that decays, by a factor that depends on the input.
    #[about(time = "n", memory = "n", Different, "delta.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = a_i (I - b_i k_i k_iᵀ) S_{i-1} + b_i k_i v_iᵀ, a_i = exp(-r softplus(x_i·w + b))")]
    #[paper("Yang 2024", "https://arxiv.org/abs/2412.06464")]
    pub struct GatedDelta = "gated-delta" | "gated-deltanet" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
        /// Positions of a causal convolution with SiLU of queries, keys and values.
        #[serde(skip_serializing_if = "Option::is_none")]
        short_conv: Option<usize> = None, small Some(3), KERNEL, Presence::Optional("none");
    }

    capabilities: |_| Capabilities::recurrent()
}
