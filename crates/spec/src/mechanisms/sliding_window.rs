use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[paper("Beltagy 2020", "https://arxiv.org/abs/2004.05150")]
    pub struct SlidingWindow = "sliding-window" | "local" {
        /// Visible keys on either side.
        window: usize = 256, small 2, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities::from_pattern(PatternUse {
        cross_attention: SELF_ATTENTION_ONLY,
        decoding: Ok(()),
        padding: Padding::Masked,
    })
}
