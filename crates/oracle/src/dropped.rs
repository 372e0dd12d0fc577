//! Which weights dropout forgets, and the noise of what is sampled, by the definition and
//! nothing else.
//!
//! Seed, example, head and query are scrambled one after the other into 64 bits; these
//! and the key are scrambled into 32. A weight is forgotten if they, as a fraction of
//! 2^32, are below the share. Noise is `-ln(-ln u)` of the fraction `u` half a step
//! further, drawn by the seed with all its bits turned over.

/// Whether the weight of `[example, head, query, key]` is forgotten.
pub(crate) fn is_dropped(share: f64, seed: u64, place: [usize; 4]) -> bool {
    (drawn(seed, place) as f64) < (share * 4_294_967_296.0).floor()
}

/// What is added to the score of `[example, head, query, key]` before the best is taken,
/// as a backend has it: the rounding of it is not its error.
pub(crate) fn noise(seed: u64, place: [usize; 4]) -> f64 {
    let fraction = (drawn(!seed, place) as f64 + 0.5) / 4_294_967_296.0;
    f64::from(-(-fraction.ln()).ln() as f32)
}

/// 32 bits.
fn drawn(seed: u64, place: [usize; 4]) -> u64 {
    let [example, head, query, key] = place.map(|at| at as u64);
    let mut row = scramble(seed);
    row = scramble(row.wrapping_add(example));
    row = scramble(row.wrapping_add(head));
    row = scramble(row.wrapping_add(query));

    const LOW: u64 = 0xffff_ffff;
    let mut x = (row ^ (key * 0x9e37_79b9)) & LOW;
    x ^= x >> 16;
    x = (x * 0x7feb_352d) & LOW;
    x ^= x >> 15;
    x ^= row >> 32;
    x = (x * 0x846c_a68b) & LOW;
    x ^ (x >> 16)
}

pub(crate) fn scramble(x: u64) -> u64 {
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
    fn the_share_is_kept_to() {
        let dropped = (0..10_000).filter(|&key| is_dropped(0.3, 7, [0, 1, 2, key]));
        let share = dropped.count() as f64 / 1e4;
        // Five standard errors.
        assert!((share - 0.3).abs() < 0.023, "{share}");
    }

    /// The best of equal scores with noise added is any of them, and of others as often as
    /// its exponential is larger.
    #[test]
    fn noise_is_what_makes_the_best_a_sample() {
        let wins = (0..10_000).filter(|&query| {
            let key = |key: usize| noise(3, [0, 0, query, key]);
            2f64.ln() + key(0) > key(1)
        });
        let share = wins.count() as f64 / 1e4;
        // Five standard errors.
        assert!((share - 2.0 / 3.0).abs() < 0.024, "{share}");
    }
}
