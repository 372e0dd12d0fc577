use std::num::NonZeroUsize;

use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{Presence, SEED, STEPS_OR_NONE, WIDTH};

mechanism! {
    /// Linear attention with random features, an unbiased estimate of the softmax kernel.
    #[about(time = "n", memory = "n", Approximate, "linear.md")]
    #[formula("o_i = Σ_j (φ(q_i)·φ(k_j)) v_j / Σ_j φ(q_i)·φ(k_j), φ_r(x) = exp(ω_r·x - |x|² / 2)")]
    #[paper("Choromanski 2020", "https://arxiv.org/abs/2009.14794")]
    pub struct Performer = "performer" {
        /// Number of random features.
        n_features: usize = 256, small 16, WIDTH;
        /// Seed of the random features.
        seed: u64 = 0, small 3, SEED;
        /// Optimizer steps between resamplings of the features; 0 for never.
        #[serde(skip_serializing_if = "Option::is_none")]
        resample: Option<usize> = None, small None, STEPS_OR_NONE, Presence::Optional("never");
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        causal: Ok(()),
        decoding: Ok(()),
        odd_d_head: Ok(()),
        padding: Padding::NeedsKeyLengths,
        options: SupportedOptions {
            // The features are those of scaled scores.
            temperature: Ok(()),
            ..SupportedOptions::NO_SCORES
        },
        returns_weights: false,
        difference: Difference::Weights,
        max_length: None,
    }
}

impl Performer {
    /// Optimizer steps between resamplings of the features, if they are resampled.
    pub fn resample_interval(&self) -> Option<NonZeroUsize> {
        self.resample.and_then(NonZeroUsize::new)
    }
}
