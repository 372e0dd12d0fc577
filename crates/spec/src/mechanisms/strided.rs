use super::{Capabilities, Padding};
use crate::keys::{LENGTH, Presence};

mechanism! {
    /// Softmax over the keys less than s away and every s-th key, s = sqrt(n).
    #[about(time = "n·sqrt(n); GPU: n² with some options", memory = "n", Exact, "strided.md")]
    #[formula("o_i = Σ_j softmax_j(q_i·k_j / √d) v_j over |i - j| < stride or (i - j) mod stride = 0")]
    #[paper("Child 2019", "https://arxiv.org/abs/1904.10509")]
    pub struct Strided = "strided" {
        /// Distance between strided keys.
        #[serde(skip_serializing_if = "Option::is_none")]
        stride: Option<usize> = None, small Some(3), LENGTH, Presence::Optional("sqrt(seq_k)");
    }

    capabilities: |config| match config.stride {
        Some(_) => Capabilities::from_pattern(Ok(()), Padding::Masked),
        None => Capabilities::from_pattern(
            Err("without `stride`, it is sqrt(seq_k), which grows while decoding"),
            Padding::ChangesResult("its stride is sqrt(seq_k), padding included"),
        ),
    }
}
