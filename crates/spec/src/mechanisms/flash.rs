use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// Exact softmax attention, tile by tile, without the weight matrix, forward and backward.
    #[about(time = "n²", memory = "n", Exact, "flash.md")]
    #[paper("Dao 2022", "https://arxiv.org/abs/2205.14135")]
    pub struct Flash = "flash" | "scaled-dot" | "global"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: false,
        difference: Difference::None,
    }
}
