use super::{Capabilities, Difference, KvHeads};
use crate::keys::{Range, SEED, Values};

mechanism! {
    /// The value of a single key: the argmax, or in training one sampled from the softmax.
    #[about(time = "n²", memory = "n", Different, "hard.md")]
    #[formula("o_i = v_j for j = argmax_j(q_i·k_j / √d); in training j is sampled from the softmax")]
    #[paper("Xu 2015", "https://arxiv.org/abs/1502.03044")]
    pub struct Hard = "hard" {
        /// Temperature of the straight-through gradient: divides scores and Gumbel noise.
        temperature: f64 = 1.0, small 0.7, Values::Number(Range::TEMPERATURE);
        /// Seed of the Gumbel noise; training passes combine it with random numbers of the device.
        seed: u64 = 0, small 5, SEED;
    }

    capabilities: |_| Capabilities::dense(KvHeads::Any, Difference::Weights)
}
