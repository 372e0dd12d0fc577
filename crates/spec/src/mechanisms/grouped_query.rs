use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{HEADS, Presence};

mechanism! {
    /// `flash` with a few key and value heads, each shared by a group of query heads.
    #[about(time = "n²", memory = "n", Exact, "shared-heads.md")]
    #[paper("Ainslie 2023", "https://arxiv.org/abs/2305.13245")]
    pub struct GroupedQuery = "grouped-query" {
        /// Key and value heads.
        n_heads_kv: Option<usize> = None, small Some(2), HEADS, Presence::Optional("n_heads / 4");
    }

    capabilities: |config| Capabilities {
        kv_heads: config.n_heads_kv.map_or(KvHeads::Quarter, KvHeads::Exactly),
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: false,
        difference: Difference::SharedHeads,
    }
}
