use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// Softmax attention that materialises and returns its weights.
    #[about(time = "n²", memory = "n²", Exact, "flash.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j")]
    #[paper("Vaswani 2017", "https://arxiv.org/abs/1706.03762")]
    pub struct Standard = "standard"

    capabilities: |_| Capabilities::dense(KvHeads::Any, Difference::None).with_weights()
}
