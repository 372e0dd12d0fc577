use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// Softmax with forget gates: scores decay by a factor that each position computes.
    #[about(time = "n²", memory = "n", Different, "forgetting.md")]
    #[formula("o_i = Σ_{j <= i} softmax_j(q_i·k_j / √d + Σ_{j < l <= i} ln f_l) v_j, f_l = sigmoid(x_l·w + b)")]
    #[paper("Lin 2025", "https://arxiv.org/abs/2503.02130")]
    pub struct Forgetting = "forgetting" | "fox"

    capabilities: |_| Capabilities {
        cross_attention: Err(
            "its gates belong to positions of a single sequence, and cross-attention has two",
        ),
        bidirectional: Err("it is causal"),
        ..Capabilities::dense(KvHeads::Any, Difference::Weights)
    }
}
