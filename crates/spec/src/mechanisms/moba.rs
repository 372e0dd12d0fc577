use super::{Capabilities, Difference, KvHeads, Padding, Support, SupportedOptions};
use crate::keys::{LENGTH, count};

mechanism! {
    /// Mixture of block attention: softmax over the query's own block of w keys and the k - 1 others whose
    /// mean keys have the largest scores.
    #[about(time = "n·k·w + n²/w", memory = "n·k", Approximate, "moba.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over j in the block of i or in the k - 1 blocks with the largest q_i·mean(k)")]
    #[paper("Lu 2025", "https://arxiv.org/abs/2502.13189")]
    pub struct Moba = "moba" {
        /// Keys in a block.
        block_size: usize = 64, small 2, LENGTH;
        /// Blocks that a query attends to, its own among them.
        top_k: usize = 4, small 2, count(1, 1 << 20);
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Err("a query attends to the block of its own position, and cross-attention has two sequences"),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Ok(()),
        odd_d_head: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions {
            alibi: GATHERED,
            bias: GATHERED,
            dropout: GATHERED,
            dense_mask: Err("it accepts full and causal patterns, key lengths and key padding only"),
            ..SupportedOptions::ALL
        },
        returns_weights: false,
        difference: Difference::MaskedKeys,
        max_length: None,
    }
}

const GATHERED: Support = Err("it gathers the keys of the selected blocks");
