use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// `flash` with one key and value head for all query heads.
    #[about(time = "n²", memory = "n", Exact, "shared-heads.md")]
    #[paper("Shazeer 2019", "https://arxiv.org/abs/1911.02150")]
    pub struct MultiQuery = "multi-query"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Exactly(1),
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: false,
        difference: Difference::SharedHeads,
    }
}
