use super::capabilities::{NO_DISTRIBUTION, WITHOUT_SCORES_OF_PAIRS};
use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{LENGTH, WIDTH};

mechanism! {
    /// Softmax attention to keys and values that learned matrices project along the sequence.
    #[about(time = "n·r", memory = "n", Different, "linformer.md")]
    #[formula("o_i = Σ_r softmax_r(q_i·(E K)_r / √d) (F V)_r, with learned matrices E and F")]
    #[paper("Wang 2020", "https://arxiv.org/abs/2006.04768")]
    pub struct Linformer = "linformer" {
        /// Projected keys and values: rows of each matrix.
        rank: usize = 256, small 4, WIDTH;
        /// The longest sequence: columns of each matrix.
        length: usize = 4096, small 150, LENGTH;
    }

    capabilities: |config| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        causal: Err("every projected key is a sum over earlier and later positions"),
        decoding: Err("every projected key is a sum over the whole sequence"),
        odd_d_head: Ok(()),
        padding: Padding::NeedsKeyLengths,
        options: SupportedOptions {
            temperature: Ok(()),
            entropy: NO_DISTRIBUTION,
            ..WITHOUT_SCORES_OF_PAIRS
        },
        returns_weights: false,
        difference: Difference::Weights,
        max_length: Some(config.length),
    }
}
