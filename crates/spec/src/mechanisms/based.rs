use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};

mechanism! {
    /// Linear attention whose weights are the second-order Taylor polynomial of the exponential.
    #[about(time = "n·d", memory = "n·d", Different, "based.md")]
    #[formula("o_i = Σ_j w_ij v_j / Σ_j w_ij, w_ij = 1 + s_ij + s_ij² / 2, s_ij = q_i·k_j / √d")]
    #[paper("Arora 2024", "https://arxiv.org/abs/2402.18668")]
    pub struct Based = "based"

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Ok(()),
        odd_d_head: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions {
            // The features are those of scaled scores.
            temperature: Ok(()),
            ..SupportedOptions::NO_SCORES
        },
        returns_weights: false,
        difference: Difference::Weights,
        max_length: None,
    }
}
