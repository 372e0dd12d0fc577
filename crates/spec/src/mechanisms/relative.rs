use super::{Capabilities, Difference, KvHeads};
use crate::keys::{Values, count};

mechanism! {
    /// Softmax with a learned bias for each bucket of relative positions.
    #[about(time = "n²", memory = "n", Different, "relative.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d + table[bucket(j - i)]) v_j")]
    #[paper("Raffel 2020", "https://arxiv.org/abs/1910.10683")]
    pub struct Relative = "relative" | "t5" {
        /// Number of buckets, of both directions together; even.
        num_buckets: usize = 32, small 6, count(4, 1 << 16);
        /// All larger distances are in the last bucket.
        max_distance: usize = 128, small 5, count(2, 1 << 30);
        /// Whether keys after the query have buckets of their own; otherwise they are in that of
        /// distance zero.
        bidirectional: bool = true, small true, Values::Bool;
    }

    capabilities: |_| Capabilities {
        cross_attention: Err(
            "its bias depends on relative positions in a single sequence, and cross-attention has \
             two",
        ),
        ..Capabilities::dense(KvHeads::Any, Difference::Weights)
    }
}
