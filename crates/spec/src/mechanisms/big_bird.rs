use super::{Capabilities, Padding};
use crate::keys::{LENGTH, LENGTH_OR_NONE, SEED};

mechanism! {
    /// Softmax over neighbouring, global and random blocks.
    #[about(time = "n", memory = "n", Exact, "longformer.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over j in a neighbouring, global or random block")]
    #[paper("Zaheer 2020", "https://arxiv.org/abs/2007.14062")]
    pub struct BigBird = "bigbird" {
        /// Positions in a block.
        block_size: usize = 64, small 2, LENGTH;
        /// Visible blocks on either side.
        neighbours: usize = 1, small 0, LENGTH_OR_NONE;
        /// Global blocks at the start, and as many at the end.
        global: usize = 1, small 1, LENGTH_OR_NONE;
        /// Random blocks.
        random: usize = 3, small 1, LENGTH_OR_NONE;
        /// Seed of the random blocks.
        seed: u64 = 0, small 5, SEED;
    }

    capabilities: |_| Capabilities::from_pattern(
        Err("its global blocks at the end depend on the final length"),
        Padding::ChangesResult("its global blocks at the end would be padding"),
    )
}
