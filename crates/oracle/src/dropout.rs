//! Dropout masks and the Gumbel noise of sampled keys, by definition.
//!
//! Seed, example, head and query are hashed one after the other into 64 bits. These and the key
//! are hashed into 32 bits. A weight is dropped if the 32 bits, as a fraction of 2^32, are below
//! the dropout probability. The noise is `-ln(-ln u)` of the fraction `u` half a step further,
//! hashed with all bits of the seed inverted.

/// Whether the weight of `[example, head, query, key]` is dropped.
pub(crate) fn is_dropped(prob: f64, seed: u64, index: [usize; 4]) -> bool {
    (hash(seed, index) as f64) < (prob * 4_294_967_296.0).floor()
}

/// The noise added to the score of `[example, head, query, key]`, rounded to `f32` as backends
/// have it.
pub(crate) fn noise(seed: u64, index: [usize; 4]) -> f64 {
    let fraction = (hash(!seed, index) as f64 + 0.5) / 4_294_967_296.0;
    f64::from(-(-fraction.ln()).ln() as f32)
}

/// 32 random bits of `[example, head, query, key]`.
fn hash(seed: u64, index: [usize; 4]) -> u64 {
    let [example, head, query, key] = index.map(|i| i as u64);
    let mut row = splitmix(seed);
    row = splitmix(row.wrapping_add(example));
    row = splitmix(row.wrapping_add(head));
    row = splitmix(row.wrapping_add(query));

    const LOW: u64 = 0xffff_ffff;
    let mut x = (row ^ (key * 0x9e37_79b9)) & LOW;
    x ^= x >> 16;
    x = (x * 0x7feb_352d) & LOW;
    x ^= x >> 15;
    x ^= row >> 32;
    x = (x * 0x846c_a68b) & LOW;
    x ^ (x >> 16)
}

pub(crate) fn splitmix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        x = (x ^ (x >> shift)).wrapping_mul(factor);
    }
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_fraction_matches_the_probability() {
        let dropped = (0..10_000).filter(|&key| is_dropped(0.3, 7, [0, 1, 2, key]));
        let fraction = dropped.count() as f64 / 1e4;
        // Five standard errors.
        assert!((fraction - 0.3).abs() < 0.023, "{fraction}");
    }

    /// The argmax of scores with Gumbel noise is a sample of their softmax.
    #[test]
    fn argmax_with_noise_samples_the_softmax() {
        let wins = (0..10_000).filter(|&query| {
            let key = |key: usize| noise(3, [0, 0, query, key]);
            2f64.ln() + key(0) > key(1)
        });
        let fraction = wins.count() as f64 / 1e4;
        // Five standard errors.
        assert!((fraction - 2.0 / 3.0).abs() < 0.024, "{fraction}");
    }
}
