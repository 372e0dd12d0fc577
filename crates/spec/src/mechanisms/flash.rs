use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// Exact softmax attention, tile by tile, without the weight matrix, forward and backward.
    #[about(time = "n²", memory = "n", Exact, "flash.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j")]
    #[paper("Dao 2022", "https://arxiv.org/abs/2205.14135")]
    pub struct Flash = "flash" | "scaled-dot" | "global"

    capabilities: |_| Capabilities::dense(KvHeads::Any, Difference::None)
}
