use super::{Capabilities, Padding};
use crate::keys::LENGTH;

mechanism! {
    /// Softmax over the query's own block of w keys.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over j in the block of i")]
    #[paper("Qiu 2019", "https://arxiv.org/abs/1911.02972")]
    pub struct Block = "block" {
        /// Positions in a block.
        block_size: usize = 256, small 3, LENGTH;
    }

    capabilities: |_| Capabilities::from_pattern(Ok(()), Padding::Masked)
}
