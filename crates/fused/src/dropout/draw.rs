//! Random numbers without a state: a number is the scrambled form of where it is needed.

/// Scrambles 64 bits so that every bit of the result depends on every bit given.
///
/// The finalizer of SplitMix64: Steele, Lea and Flood, 2014.
pub(super) fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers that are drawn by one key.
pub(super) const BLOCK: usize = 1024;

/// What the numbers of a block are drawn by.
pub(super) fn block_key(seed: u64, block: usize) -> [u32; 2] {
    let key = mix(mix(seed).wrapping_add(block as u64));
    [key as u32, (key >> 32) as u32]
}

/// The 32 bits that belong to a place of a block.
///
/// Two multiplications of 32 bits, which vector units have. The second half of the key joins
/// in between, so that blocks whose first halves are alike go separate ways.
#[inline(always)]
pub(super) fn draw([low, high]: [u32; 2], place: u32) -> u32 {
    let x = low ^ place.wrapping_mul(0x9e37_79b9);
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = ((x ^ (x >> 15)) ^ high).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(seed: u64, count: usize) -> Vec<u32> {
        (0..count)
            .map(|at| draw(block_key(seed, at / BLOCK), (at % BLOCK) as u32))
            .collect()
    }

    #[test]
    fn every_share_is_met() {
        let count = 200_000;
        for share in [0.1, 0.3, 0.5, 0.9] {
            let threshold = (share * 2f64.powi(32)) as u32;
            let below = bits(3, count).into_iter().filter(|bits| *bits < threshold);
            let got = below.count() as f64 / count as f64;
            // Five standard errors.
            let noise = 5.0 * (share * (1.0 - share) / count as f64).sqrt();
            assert!((got - share).abs() < noise, "{got} instead of {share}");
        }
    }

    /// Neighbours, near and far, and other seeds, agree half of the time.
    #[test]
    fn places_are_independent() {
        let count = 50_000;
        let numbers = bits(11, count + BLOCK);
        let others = [
            ("the next", numbers[1..].to_vec()),
            ("the next but 15", numbers[16..].to_vec()),
            ("the next block", numbers[BLOCK..].to_vec()),
            ("the next seed", bits(12, count)),
        ];
        let noise = 5.0 * 0.5 / (count as f64).sqrt();
        for (what, others) in others {
            let is_large = |bits: &u32| *bits >= 1 << 31;
            let pairs = numbers.iter().zip(&others).take(count);
            let agree = pairs.filter(|(a, b)| is_large(a) == is_large(b)).count();
            let share = agree as f64 / count as f64;
            assert!((share - 0.5).abs() < noise, "{what}: {share}");
        }
    }
}
