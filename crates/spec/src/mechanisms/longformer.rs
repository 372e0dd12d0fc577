use super::{Capabilities, Padding};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys and g global tokens.
    #[about(time = "n·(w + g)", memory = "n", Exact, "longformer.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i - j| <= window or i < global or j < global")]
    #[paper("Beltagy 2020", "https://arxiv.org/abs/2004.05150")]
    pub struct Longformer = "longformer" {
        /// Visible keys on either side.
        window: usize = 256, small 1, LENGTH_OR_NONE;
        /// Global tokens at the start, which attend to all tokens and are attended to by all.
        global: usize = 1, small 1, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities::from_pattern(Ok(()), Padding::Masked)
}
