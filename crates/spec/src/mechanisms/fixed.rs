use super::{Capabilities, Padding};
use crate::keys::{LENGTH, LENGTH_OR_NONE, Presence};

mechanism! {
    /// Softmax over the query's own block and the last c keys of every block, blocks of sqrt(n).
    #[about(time = "n·sqrt(n)·c; GPU: n² with some options", memory = "n", Exact, "strided.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over j in the block of i or at the end of any block")]
    #[paper("Child 2019", "https://arxiv.org/abs/1904.10509")]
    pub struct Fixed = "fixed" {
        /// Positions in a block.
        #[serde(skip_serializing_if = "Option::is_none")]
        block_size: Option<usize> = None, small Some(3), LENGTH, Presence::Optional("sqrt(seq_k)");
        /// Summary columns: keys at the end of each block, visible to all queries.
        summary: usize = 8, small 1, LENGTH_OR_NONE;
    }

    capabilities: |config| match config.block_size {
        Some(_) => Capabilities::from_pattern(Ok(()), Padding::Masked),
        None => Capabilities::from_pattern(
            Err("without `block_size`, it is sqrt(seq_k), which grows while decoding"),
            Padding::ChangesResult("its block is sqrt(seq_k), padding included"),
        ),
    }
}
