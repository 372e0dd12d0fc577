use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::LENGTH;

mechanism! {
    /// Softmax over the query's own block of w keys.
    #[about(time = "n·w", memory = "n", Exact, "local.md")]
    #[paper("Qiu 2019", "https://arxiv.org/abs/1911.02972")]
    pub struct Block = "block" {
        /// Positions in a block.
        size: usize = 256, small 3, LENGTH;
    }

    capabilities: |_| Capabilities::from_pattern(PatternUse {
        cross_attention: SELF_ATTENTION_ONLY,
        decoding: Ok(()),
        padding: Padding::Masked,
    })
}
