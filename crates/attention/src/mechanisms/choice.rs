//! How [hard attention](super::hard) chooses its key.

/// How hard attention chooses its one key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Choice {
    /// The largest score, the first of several. Only values have a gradient: that by
    /// queries and keys is none.
    Best,
    /// A sample: a key is taken as often as softmax would weigh it.
    Sampled {
        /// What scores and noise are divided by for the gradient: near zero it is that of
        /// the choice made, and wild; large ones spread it over all keys.
        temperature: f64,
        /// Which noise. It follows from the seed and the place alone, the same on every
        /// backend; a training step takes a new seed.
        seed: u64,
    },
}
