use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// Softmax of v·tanh(W₁q + W₂k), with learned W₁, W₂ and vector v.
    #[about(time = "n²", memory = "n²", Different, "scores.md")]
    #[paper("Bahdanau 2014", "https://arxiv.org/abs/1409.0473")]
    pub struct Additive = "additive" | "concat"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: true,
        difference: Difference::Weights,
    }
}
