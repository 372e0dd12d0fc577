use super::Capabilities;
use crate::keys::Values;

mechanism! {
    /// The delta rule on a state that decays, by a factor that depends on the input.
    #[about(time = "n", memory = "n", Different, "delta.md")]
    #[formula("o_i = q_i·S_i / √d, S_i = a_i (I - b_i k_i k_iᵀ) S_{i-1} + b_i k_i v_iᵀ, a_i = exp(-r softplus(x_i·w + b))")]
    #[paper("Yang 2024", "https://arxiv.org/abs/2412.06464")]
    pub struct GatedDelta = "gated-delta" | "gated-deltanet" {
        /// Normalise the output of each head by RMSNorm.
        head_norm: bool = true, small false, Values::Bool;
    }

    capabilities: |_| Capabilities::recurrent()
}
