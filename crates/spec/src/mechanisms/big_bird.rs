use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::{LENGTH, LENGTH_OR_NONE, SEED};

mechanism! {
    /// Softmax over neighbouring, global and random blocks.
    #[about(time = "n", memory = "n", Exact, "longformer.md")]
    #[paper("Zaheer 2020", "https://arxiv.org/abs/2007.14062")]
    pub struct BigBird = "bigbird" {
        /// Positions in a block.
        block: usize = 64, small 2, LENGTH;
        /// Visible blocks on either side.
        neighbours: usize = 1, small 0, LENGTH_OR_NONE;
        /// Global blocks at the start, and as many at the end.
        global: usize = 1, small 1, LENGTH_OR_NONE;
        /// Random blocks.
        random: usize = 3, small 1, LENGTH_OR_NONE;
        /// Seed of the random blocks.
        seed: u64 = 0, small 5, SEED;
    }

    capabilities: |_| Capabilities::from_pattern(PatternUse {
        cross_attention: SELF_ATTENTION_ONLY,
        decoding: Err("its global blocks at the end depend on the final length"),
        padding: Padding::ChangesResult("its global blocks at the end would be padding"),
    })
}
