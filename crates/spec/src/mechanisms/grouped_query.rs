use super::{Capabilities, Difference, KvHeads};
use crate::keys::{HEADS, Presence};

mechanism! {
    /// `flash` with a few key and value heads, each shared by a group of query heads.
    #[about(time = "n²", memory = "n", Exact, "shared-heads.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j, with one k_j, v_j for each group of heads")]
    #[paper("Ainslie 2023", "https://arxiv.org/abs/2305.13245")]
    pub struct GroupedQuery = "grouped-query" {
        /// Key and value heads.
        #[serde(skip_serializing_if = "Option::is_none")]
        n_heads_kv: Option<usize> = None, small Some(2), HEADS, Presence::Optional("n_heads / 4");
    }

    capabilities: |config| {
        let kv_heads = config.n_heads_kv.map_or(KvHeads::Quarter, KvHeads::Exactly);
        Capabilities::dense(kv_heads, Difference::SharedHeads)
    }
}
