use super::{Capabilities, Padding, PatternUse, SELF_ATTENTION_ONLY};
use crate::keys::{LENGTH, Presence};

mechanism! {
    /// Softmax over the keys less than s away and every s-th key, s = sqrt(n).
    #[about(time = "n·sqrt(n); n² with dropout, bias, ALiBi, lengths", memory = "n", Exact, "strided.md")]
    #[paper("Child 2019", "https://arxiv.org/abs/1904.10509")]
    pub struct Strided = "strided" {
        /// Distance between strided keys.
        stride: Option<usize> = None, small Some(3), LENGTH, Presence::Optional("sqrt(seq_k)");
    }

    capabilities: |config| {
        let needs = Err("without `stride`, it is sqrt(seq_k), which grows while decoding");
        Capabilities::from_pattern(PatternUse {
            cross_attention: SELF_ATTENTION_ONLY,
            decoding: if config.stride.is_some() { Ok(()) } else { needs },
            padding: match config.stride {
                Some(_) => Padding::Masked,
                None => Padding::ChangesResult("its stride is sqrt(seq_k), padding included"),
            },
        })
    }
}
