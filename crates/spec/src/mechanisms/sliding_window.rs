use super::{Capabilities, Padding};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i - j| <= window")]
    #[paper("Beltagy 2020", "https://arxiv.org/abs/2004.05150")]
    pub struct SlidingWindow = "sliding-window" | "local" {
        /// Visible keys on either side.
        window: usize = 256, small 2, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities::from_pattern(Ok(()), Padding::Masked)
}
