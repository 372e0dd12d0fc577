use super::{Capabilities, Padding};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys around the key with the query's own index.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i - j| <= window")]
    #[paper("Luong 2015", "https://arxiv.org/abs/1508.04025")]
    pub struct LocalM = "local-m" {
        /// Visible keys on either side.
        window: usize = 10, small 3, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities {
        cross_attention: Ok(()),
        ..Capabilities::from_pattern(Ok(()), Padding::Masked)
    }
}
