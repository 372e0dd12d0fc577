use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{LENGTH, Presence};

mechanism! {
    /// Linear attention with ReLU features and weights that decrease with the distance by a cosine.
    #[about(time = "n", memory = "n", Different, "cosformer.md")]
    #[formula("o_i = Σ_j w_ij v_j / Σ_j w_ij, w_ij = cos(π/2 · (i - j) / M) relu(q_i)·relu(k_j)")]
    #[paper("Qin 2022", "https://arxiv.org/abs/2202.08791")]
    pub struct Cosformer = "cosformer" {
        /// The M of the formula, at least the longest sequence.
        #[serde(skip_serializing_if = "Option::is_none")]
        length: Option<usize> = None, small Some(400), LENGTH, Presence::Optional("the longer of both sequences");
    }

    capabilities: |config| {
        let linear = Capabilities {
            kv_heads: KvHeads::Any,
            cross_attention: Err(
                "its weights depend on the distance of positions in a single sequence",
            ),
            bidirectional: Ok(()),
        causal: Ok(()),
            decoding: Ok(()),
            odd_d_head: Ok(()),
            padding: Padding::Masked,
            options: SupportedOptions::NO_SCORES,
            returns_weights: false,
            difference: Difference::Weights,
            max_length: config.length,
        };
        match config.length {
            Some(_) => linear,
            None => Capabilities {
                decoding: Err("without `length`, M is the sequence length, which grows while decoding"),
                padding: Padding::ChangesResult("its M is the sequence length, padding included"),
                ..linear
            },
        }
    }
}
