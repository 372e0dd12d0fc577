use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// Softmax of q·W·k with a learned matrix W.
    #[about(time = "n²", memory = "n", Different, "scores.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·W·k_j) v_j")]
    #[paper("Luong 2015", "https://arxiv.org/abs/1508.04025")]
    pub struct Multiplicative = "multiplicative" | "general"

    capabilities: |_| Capabilities::dense(KvHeads::Any, Difference::Weights)
}
