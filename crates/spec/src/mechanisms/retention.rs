use super::Capabilities;
use crate::keys::Values;

mechanism! {
    /// Linear attention with exponential decay, causal.
    #[about(time = "n", memory = "n", Different, "retention.md")]
    #[formula("o_i = Σ_{j <= i} γ^(i - j) (q_i·k_j / √d) v_j")]
    #[paper("Sun 2023", "https://arxiv.org/abs/2307.08621")]
    pub struct Retention = "retention" {
        /// Normalise the output of each head, as the paper does (eq. 8, without parameters).
        group_norm: bool = false, small false, Values::Bool;
    }

    capabilities: |_| Capabilities::recurrent()
}
