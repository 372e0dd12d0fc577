use std::num::NonZeroUsize;

use super::{Capabilities, Difference, KvHeads, Padding, SupportedOptions};
use crate::keys::{Presence, SEED, STEPS_OR_NONE, WIDTH};

mechanism! {
    /// Linear attention with random features whose expected products are those of the softmax.
    #[about(time = "n", memory = "n", Approximate, "linear.md")]
    #[paper("Choromanski 2020", "https://arxiv.org/abs/2009.14794")]
    pub struct Performer = "performer" {
        /// Number of random features.
        features: usize = 256, small 16, WIDTH;
        /// Seed of the random features.
        seed: u64 = 0, small 3, SEED;
        /// Training passes between resamplings of the features; 0 is never.
        redraw: Option<usize> = None, small None, STEPS_OR_NONE, Presence::Optional("never");
    }

    capabilities: |_| Capabilities {
        kv_heads: KvHeads::Any,
        cross_attention: Ok(()),
        bidirectional: Ok(()),
        decoding: Ok(()),
        padding: Padding::NeedsKeyLengths,
        options: SupportedOptions {
            // The features are those of scaled scores.
            temperature: Ok(()),
            ..SupportedOptions::NO_SCORES
        },
        returns_weights: false,
        difference: Difference::Weights,
    }
}

impl Performer {
    /// Training passes between resamplings of the features, if they are ever resampled.
    pub fn redraw_interval(&self) -> Option<NonZeroUsize> {
        self.redraw.and_then(NonZeroUsize::new)
    }
}
