use super::Capabilities;
use crate::keys::{KERNEL, Presence, Values};

mechanism! {
    /// The delta rule: a position replaces what the state returns for its key.
    #[about(time = "n", memory = "n", Different, "delta.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = (I - b_i k_i k_iᵀ) S_{i-1} + b_i k_i v_iᵀ, b_i = sigmoid(x_i·w), |q_i| = |k_i| = 1")]
    #[paper("Schlag 2021", "https://arxiv.org/abs/2102.11174")]
    pub struct Delta = "delta" | "deltanet" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
        /// Positions of a causal convolution with SiLU of queries, keys and values.
        #[serde(skip_serializing_if = "Option::is_none")]
        short_conv: Option<usize> = None, small Some(3), KERNEL, Presence::Optional("none");
    }

    capabilities: |_| Capabilities::recurrent()
}
