use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// Softmax attention that materialises and returns its weights.
    #[about(time = "n²", memory = "n²", Exact, "flash.md")]
    #[paper("Vaswani 2017", "https://arxiv.org/abs/1706.03762")]
    pub struct Standard = "standard"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: true,
        difference: Difference::None,
    }
}
