//! Which weights dropout forgets, by the definition and nothing else.
//!
//! Seed, example, head and query are scrambled one after the other into 64 bits; these
//! and the key are scrambled into 32. A weight is forgotten if they, as a fraction of
//! 2^32, are below the share.

/// Whether the weight of `[example, head, query, key]` is forgotten.
pub(crate) fn is_dropped(share: f64, seed: u64, place: [usize; 4]) -> bool {
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
    x ^= x >> 16;
    (x as f64) < (share * 4_294_967_296.0).floor()
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
}
