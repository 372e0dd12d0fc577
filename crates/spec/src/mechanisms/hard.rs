use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{Range, SEED, Values};

mechanism! {
    /// The value of a single key: the argmax, or in training one sampled from the softmax.
    #[about(time = "n²", memory = "n²", Different, "hard.md")]
    #[paper("Xu 2015", "https://arxiv.org/abs/1502.03044")]
    pub struct Hard = "hard" {
        /// Temperature of the straight-through gradient: divides scores and Gumbel noise.
        temperature: f64 = 1.0, small 0.7, Values::Number(Range::TEMPERATURE);
        /// Seed of the Gumbel noise; training passes combine it with random numbers of the device.
        seed: u64 = 0, small 5, SEED;
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::Masked,
        options: SupportedOptions::ALL,
        returns_weights: true,
        difference: Difference::Weights,
    }
}
