//! Which key draws which elements.

use crate::random::{key, mix};

/// Elements that are drawn by one key.
pub(super) const BLOCK: usize = 1024;

/// The key of a block.
pub(super) fn block_key(seed: u64, block: usize) -> [u32; 2] {
    key(mix(seed), block)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{draw, threshold};

    fn bits(seed: u64, count: usize) -> Vec<u32> {
        (0..count)
            .map(|at| draw(block_key(seed, at / BLOCK), (at % BLOCK) as u32))
            .collect()
    }

    #[test]
    fn every_share_is_met() {
        let count = 200_000;
        for share in [0.1, 0.3, 0.5, 0.9] {
            let threshold = threshold(share);
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
