use super::Capabilities;
use crate::keys::{KERNEL, Presence, Values};

mechanism! {
    /// Linear attention whose state decays at rates that depend on the input, one for each row.
    #[about(time = "n", memory = "n", Different, "gated-linear.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = diag(a_i) S_{i-1} + k_i v_iᵀ, a_i = sigmoid(x_i·W + b)^(1/16)")]
    #[paper("Yang 2023", "https://arxiv.org/abs/2312.06635")]
    pub struct Gla = "gla" | "gated-linear" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
        /// Positions of a causal convolution with SiLU of queries, keys and values.
        #[serde(skip_serializing_if = "Option::is_none")]
        short_conv: Option<usize> = None, small None, KERNEL, Presence::Optional("none");
    }

    capabilities: |_| Capabilities::recurrent()
}
