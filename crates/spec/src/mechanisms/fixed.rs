use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::{LENGTH, LENGTH_OR_NONE, Presence};

mechanism! {
    /// Softmax over the query's own block and the last c keys of every block, blocks of sqrt(n).
    #[about(time = "n·sqrt(n)·c; n² with dropout, bias, ALiBi, lengths", memory = "n", Exact, "strided.md")]
    #[paper("Child 2019", "https://arxiv.org/abs/1904.10509")]
    pub struct Fixed = "fixed" {
        /// Positions in a block.
        block: Option<usize> = None, small Some(3), LENGTH, Presence::Optional("sqrt(seq_k)");
        /// Summary columns: keys at the end of each block, visible to all queries.
        summary: usize = 8, small 1, LENGTH_OR_NONE;
    }

    capabilities: |config| {
        let needs = Err("without `block`, it is sqrt(seq_k), which grows while decoding");
        Capabilities::from_pattern(PatternUse {
            cross_attention: SELF_ATTENTION_ONLY,
            decoding: if config.block.is_some() { Ok(()) } else { needs },
            padding: match config.block {
                Some(_) => Padding::Masked,
                None => Padding::ChangesResult("its block is sqrt(seq_k), padding included"),
            },
        })
    }
}
