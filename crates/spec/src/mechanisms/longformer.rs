use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::LENGTH_OR_NONE;

mechanism! {
    /// Softmax over ±w keys and g global tokens.
    #[about(time = "n·(w + g)", memory = "n", Exact, "longformer.md")]
    #[paper("Beltagy 2020", "https://arxiv.org/abs/2004.05150")]
    pub struct Longformer = "longformer" {
        /// Visible keys on either side.
        window: usize = 256, small 1, LENGTH_OR_NONE;
        /// Global tokens at the start, which attend to all tokens and are attended to by all.
        global: usize = 1, small 1, LENGTH_OR_NONE;
    }

    capabilities: |_| Capabilities::from_pattern(PatternUse {
        cross_attention: SELF_ATTENTION_ONLY,
        decoding: Ok(()),
        padding: Padding::Masked,
    })
}
