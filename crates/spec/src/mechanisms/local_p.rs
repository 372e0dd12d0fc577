use super::capabilities::NO_DISTRIBUTION;
use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::LENGTH;

mechanism! {
    /// Softmax over ±w keys around a predicted position, with Gaussian weighting.
    #[about(time = "n²", memory = "n", Different, "local.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) exp(-2 (j - p_i)² / window²) v_j over |j - p_i| <= window")]
    #[paper("Luong 2015", "https://arxiv.org/abs/1508.04025")]
    pub struct LocalP = "local-p" {
        /// Visible keys on either side; twice the standard deviation of the weighting.
        window: usize = 10, small 2, LENGTH;
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Err("the position it predicts depends on the final length"),
        odd_d_head: Ok(()),
        padding: Padding::NeedsKeyLengths,
        options: SupportedOptions {
            entropy: NO_DISTRIBUTION,
            ..SupportedOptions::ALL
        },
        returns_weights: false,
        difference: Difference::MaskedKeys,
        max_length: None,
    }
}
