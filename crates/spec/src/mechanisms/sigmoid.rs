use super::capabilities::NO_DISTRIBUTION;
use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{LENGTH, Presence};

mechanism! {
    /// The sigmoid of each score as weight, without normalisation over the keys.
    #[about(time = "n²", memory = "n", Different, "sigmoid.md")]
    #[formula("o_i = Σ_j sigmoid(q_i·k_j / √d - ln n) v_j")]
    #[paper("Ramapuram 2024", "https://arxiv.org/abs/2409.04431")]
    pub struct Sigmoid = "sigmoid" {
        /// The n of the formula: about how many keys a query sees in training.
        #[serde(skip_serializing_if = "Option::is_none")]
        length: Option<usize> = None, small Some(3), LENGTH, Presence::Optional("seq_k");
    }

    capabilities: |config| {
        let dense = Capabilities {
            options: SupportedOptions {
                entropy: NO_DISTRIBUTION,
                ..SupportedOptions::ALL
            },
            ..Capabilities::dense(KvHeads::Any, Difference::Weights)
        };
        match config.length {
            Some(_) => dense,
            None => Capabilities {
                decoding: Err("without `length`, n is seq_k, which grows while decoding"),
                padding: Padding::ChangesResult("its n is seq_k, padding included"),
                ..dense
            },
        }
    }
}
