use super::{Capabilities, Padding, PatternUse};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys around the key with the query's own index.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[paper("Luong 2015", "https://arxiv.org/abs/1508.04025")]
    pub struct LocalM = "local-m" {
        /// Visible keys on either side.
        window: usize = 10, small 3, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities::from_pattern(PatternUse {
        cross_attention: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
    })
}
