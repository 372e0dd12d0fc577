use super::capabilities::{NO_DISTRIBUTION, WITHOUT_SCORES_OF_PAIRS};
use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{LENGTH, count};

mechanism! {
    /// Softmax attention approximated through landmarks, the means of segments of queries and keys.
    #[about(time = "n·m", memory = "n", Approximate, "nystrom.md")]
    #[formula("o_i = softmax(q_i·K̃ᵀ / √d) softmax(Q̃ K̃ᵀ / √d)⁺ softmax(Q̃ Kᵀ / √d) V, Q̃ and K̃ means of segments")]
    #[paper("Xiong 2021", "https://arxiv.org/abs/2102.03902")]
    pub struct Nystrom = "nystrom" | "nystromformer" {
        /// Number of landmarks; shorter sequences have one for each position.
        landmarks: usize = 64, small 3, LENGTH;
        /// Iterations of the pseudo-inverse. More of them amplify rounding errors.
        iterations: usize = 6, small 6, count(1, 8);
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Err("its landmarks are means over all queries, also of later positions"),
        bidirectional: Ok(()),
        causal: Err("its landmarks are means over earlier and later positions"),
        decoding: Err("its landmarks are means over the whole sequence"),
        odd_d_head: Ok(()),
        padding: Padding::ChangesResult("padding would be part of the segments"),
        options: SupportedOptions {
            temperature: Ok(()),
            entropy: NO_DISTRIBUTION,
            ..WITHOUT_SCORES_OF_PAIRS
        },
        returns_weights: false,
        difference: Difference::Weights,
        max_length: None,
    }
}
