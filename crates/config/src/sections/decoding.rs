//! `[decoding]`: how text is written.

use crate::keys::{
    Choice, GENERATED, LIMIT, NOT_NEGATIVE, POSITIVE, Presence, Range, SEED, Values, count, keys,
    kinds,
};

keys! {
    /// How text is written, by models that write any.
    pub struct Decoding {
        /// How tokens are chosen; validations on the way take `greedy` for `beam`, which is for the test and for use.
        strategy: Option<Strategy> = None, STRATEGY, Presence::Optional("`sample` for `gpt`, else `greedy`");
        /// Tokens before the end may come.
        min_length: usize = 0, count(0, 1 << 20);
        /// Tokens after which a text stops.
        max_length: usize = 128, GENERATED;
        /// How many tokens in a row must not come twice in a text.
        no_repeat_ngram: Option<usize> = None, GENERATED, Presence::Optional("any may come again");
        /// What is drawn when sampling: the same seed, the same text.
        seed: u64 = 0, SEED;
    }
}

const STRATEGY: Values = Values::Choice(&Choice {
    name: "strategy",
    variants: Strategy::KINDS,
});

kinds! {
    /// How tokens are chosen.
    pub enum Strategy {
        /// The likeliest one each time.
        Greedy = "greedy",
        /// The best of several texts that are followed side by side.
        Beam(Beam) = "beam",
        /// Drawn.
        Sample(Sample) = "sample",
    }
}

keys! {
    /// Keys of a beam search.
    pub struct Beam {
        /// Texts that are followed.
        beams: usize = 4, LIMIT;
        /// The exponent by which longer texts may be less likely; 0 is not at all.
        length_penalty: f64 = 0.0, NOT_NEGATIVE;
        /// Texts that come back.
        n_best: usize = 1, LIMIT;
    }
}

keys! {
    /// Keys of sampling.
    pub struct Sample {
        /// What logits are divided by: below 1 sharpens, above 1 flattens.
        temperature: f64 = 1.0, POSITIVE;
        /// Draws among the likeliest so many tokens alone.
        top_k: Option<usize> = None, LIMIT, Presence::Optional("all");
        /// Draws among the fewest likeliest tokens that are together at least as likely as this.
        top_p: Option<f64> = None, Values::Number(Range::FRACTION), Presence::Optional("all");
    }
}
