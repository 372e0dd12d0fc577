use super::capabilities::NO_DISTRIBUTION;
use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{LENGTH_OR_NONE, Presence, Values};

mechanism! {
    /// Softmax with a sink: a score without a value, which takes part of each query's weight.
    #[about(time = "n², or n·(w + f)", memory = "n", Different, "sink.md")]
    #[formula("o_i = Σ_j exp(s_ij) v_j / (exp(sink) + Σ_j exp(s_ij)), s_ij = q_i·k_j / √d")]
    #[paper("Xiao 2023", "https://arxiv.org/abs/2309.17453")]
    pub struct Sink = "sink" {
        /// Train a sink for each head; otherwise every sink is 0, which is "softmax off by one".
        learned: bool = true, small true, Values::Bool;
        /// Visible keys on either side, besides the first ones.
        #[serde(skip_serializing_if = "Option::is_none")]
        window: Option<usize> = None, small Some(2), LENGTH_OR_NONE, Presence::Optional("all keys");
        /// Keys at the start that are always visible, if there is a window.
        first: usize = 4, small 1, LENGTH_OR_NONE;
    }

    capabilities: |config| {
        let options = SupportedOptions {
            entropy: NO_DISTRIBUTION,
            ..SupportedOptions::ALL
        };
        match config.window {
            Some(_) => Capabilities {
                options,
                difference: Difference::Weights,
                ..Capabilities::from_pattern(Ok(()), Padding::Masked)
            },
            None => Capabilities {
                options,
                ..Capabilities::dense(KvHeads::Any, Difference::Weights)
            },
        }
    }
}
