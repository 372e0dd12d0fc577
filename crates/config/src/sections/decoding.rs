//! `[decoding]`: text generation.

use crate::keys::{
    GENERATED, LIMIT, NOT_NEGATIVE, POSITIVE, Presence, Range, SEED, Values, choice, count, keys,
    kinds,
};

keys! {
    /// Text generation.
    pub struct Decoding {
        /// Decoding strategy; validation during training uses `greedy` instead of `beam`.
        strategy: Option<Strategy> = None, choice("strategy", Strategy::KINDS),
            Presence::Optional("`sample` for `gpt`, else `greedy`");
        /// Minimum length in tokens.
        min_length: usize = 0, count(0, 1 << 20);
        /// Maximum length in tokens.
        max_length: usize = 128, GENERATED;
        /// N-grams of this length may not repeat.
        no_repeat_ngram: Option<usize> = None, GENERATED, Presence::Optional("repetition is allowed");
        /// Random seed for sampling.
        seed: u64 = 0, SEED;
    }

    /// Keys of beam search.
    pub struct Beam {
        /// Beam width.
        beams: usize = 4, LIMIT;
        /// Length penalty exponent (0 = none).
        length_penalty: f64 = 0.0, NOT_NEGATIVE;
        /// Number of hypotheses to return.
        n_best: usize = 1, LIMIT;
    }

    /// Keys of sampling.
    pub struct Sample {
        /// Softmax temperature: below 1 sharpens, above 1 flattens; for 0, use `greedy`.
        temperature: f64 = 1.0, POSITIVE;
        /// Sample from the K most likely tokens.
        top_k: Option<usize> = None, LIMIT, Presence::Optional("all tokens");
        /// Nucleus sampling: sample from the smallest set of tokens with total probability P.
        top_p: Option<f64> = None, Values::Number(Range::FRACTION), Presence::Optional("all tokens");
    }
}

kinds! {
    /// Decoding strategy.
    pub enum Strategy {
        /// The most likely token.
        Greedy = "greedy",
        /// Beam search.
        Beam(Beam) = "beam",
        /// Random sampling.
        Sample(Sample) = "sample",
    }
}
