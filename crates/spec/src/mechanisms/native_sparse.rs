use super::capabilities::NO_DISTRIBUTION;
use super::{Capabilities, Difference, KvHeads, Padding, Support, SupportedOptions};
use crate::keys::{LENGTH, LENGTH_OR_NONE, count};

mechanism! {
    /// Native sparse attention: a gated sum of attention to the means of blocks of w keys, to the keys of the k
    /// blocks with the largest weights, and to a window of m keys.
    #[about(time = "n·(k·w + m) + n²/w", memory = "n·k", Different, "native-sparse.md")]
    #[formula("o_i = g_i1 A(q_i, means of blocks) + g_i2 A(q_i, keys of selected blocks) + g_i3 A(q_i, last keys), A softmax attention, g_i = sigmoid(x_i·W + b)")]
    #[paper("Yuan 2025", "https://arxiv.org/abs/2502.11089")]
    pub struct NativeSparse = "native-sparse" | "nsa" {
        /// Keys in a block.
        block_size: usize = 64, small 2, LENGTH;
        /// Blocks that a query selects, its own among them.
        top_k: usize = 4, small 2, count(1, 1 << 20);
        /// Keys of the window on either side.
        window: usize = 512, small 1, LENGTH_OR_NONE;
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
            entropy: NO_DISTRIBUTION,
            ..SupportedOptions::ALL
        },
        returns_weights: false,
        difference: Difference::Weights,
        max_length: None,
    }
}

const GATHERED: Support = Err("it gathers the keys of the selected blocks");
