use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// Softmax of unscaled dot products.
    #[about(time = "n²", memory = "n", Different, "scores.md")]
    #[paper("Luong 2015", "https://arxiv.org/abs/1508.04025")]
    pub struct Dot = "dot"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: false,
        difference: Difference::Weights,
    }
}
