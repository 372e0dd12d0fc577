//! A portable pseudorandom number generator.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period.
#[derive(Debug, Clone)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// An independent stream for each name.
    pub fn named(name: &str) -> Self {
        // FNV-1a: the standard library's hasher may change between releases.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    /// An independent stream for each seed, name and index: the values at one index do not depend
    /// on how many were generated at another.
    pub fn new(seed: u64, name: &str, index: u64) -> Self {
        // Mixed after each value: neighbouring seeds and indices would otherwise give the same
        // stream, shifted by a few steps.
        let mut rng = Self::named(name);
        for value in [seed, index] {
            rng = Self(rng.next() ^ value);
        }
        Self(rng.next())
    }

    /// The next 64 random bits.
    #[allow(clippy::should_implement_trait)] // infinite
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A uniform integer in `0..count`.
    ///
    /// # Panics
    ///
    /// If `count` is 0.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "SplitMix64::below: count must be at least 1");
        // The high half of a 128-bit product (Lemire 2019). Its bias is below 2^-32 for any count
        // that fits in memory.
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// A uniform integer in `min..=max`.
    pub fn within(&mut self, min: usize, max: usize) -> usize {
        min + self.below(max - min + 1)
    }

    /// A uniformly chosen item.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }

    /// A uniform value in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `count` normal values with mean 0 and this standard deviation (Box-Muller), rounded to `f32`
    /// so that different programs get identical inputs.
    pub fn normals(&mut self, count: usize, std: f64) -> Vec<f32> {
        let mut normal = || {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        };
        (0..count).map(|_| (normal() * std) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_reference_implementation() {
        // The first outputs from state 1234567.
        let mut rng = SplitMix64(1_234_567);
        assert_eq!(
            [rng.next(), rng.next(), rng.next()],
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn streams_are_distinct() {
        let first = |seed, name, index| SplitMix64::new(seed, name, index).next();
        let streams = [
            first(0, "a", 0),
            first(1, "a", 0),
            first(0, "b", 0),
            first(0, "a", 1),
            first(1, "a", 1),
            SplitMix64::named("a").next(),
            SplitMix64::named("b").next(),
        ];
        for (i, stream) in streams.iter().enumerate() {
            assert!(!streams[..i].contains(stream));
        }
        assert_eq!(first(3, "a", 5), first(3, "a", 5));
    }

    #[test]
    fn below_is_uniform() {
        let mut rng = SplitMix64::new(7, "below", 0);
        let mut counts = [0_usize; 6];
        for _ in 0..60_000 {
            counts[rng.below(6)] += 1;
        }
        // Five standard deviations of a count: 5 · sqrt(60000 · 1/6 · 5/6).
        for count in counts {
            assert!(count.abs_diff(10_000) < 457, "{counts:?}");
        }
    }

    #[test]
    fn shuffle_permutes() {
        let mut seen = [[false; 5]; 5];
        for index in 0..200 {
            let mut items = [0, 1, 2, 3, 4];
            SplitMix64::new(0, "shuffle", index).shuffle(&mut items);
            for (i, item) in items.into_iter().enumerate() {
                seen[i][item] = true;
            }
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3, 4]);
        }
        assert_eq!(seen, [[true; 5]; 5]);
    }

    #[test]
    fn normals_have_the_requested_moments() {
        let samples = SplitMix64::named("moments").normals(40_000, 3.0);
        let mean = samples.iter().map(|&x| f64::from(x)).sum::<f64>() / samples.len() as f64;
        let squares = samples.iter().map(|&x| (f64::from(x) - mean).powi(2));
        let variance = squares.sum::<f64>() / samples.len() as f64;
        // Four standard errors: 3/sqrt(40000) for the mean, 9*sqrt(2/40000) for the variance.
        assert!(mean.abs() < 0.06, "mean {mean}");
        assert!((variance - 9.0).abs() < 0.26, "variance {variance}");
    }
}
