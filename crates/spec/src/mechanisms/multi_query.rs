use super::{Capabilities, Difference, KvHeads};

mechanism! {
    /// `flash` with one key and value head for all query heads.
    #[about(time = "n²", memory = "n", Exact, "shared-heads.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j, with one k_j, v_j for all heads")]
    #[paper("Shazeer 2019", "https://arxiv.org/abs/1911.02150")]
    pub struct MultiQuery = "multi-query"

    capabilities: |_| Capabilities::dense(KvHeads::Exactly(1), Difference::SharedHeads)
}
