//! Numbers that are random enough and the same on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// A stream of its own for each name: another name leaves the numbers of this one as they are.
    pub fn named(name: &str) -> Self {
        // FNV-1a: the standard library's hasher may change between releases.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(hash)
    }

    /// A stream of its own for each seed, name and index: what is drawn at one index does not
    /// depend on how much was drawn at another.
    pub fn new(seed: u64, name: &str, index: u64) -> Self {
        // Each number is mixed before the next comes in: neighbouring seeds and indices
        // would otherwise be the same stream, a few steps apart.
        let mut draw = Self::named(name);
        for number in [seed, index] {
            draw = Self(draw.next() ^ number);
        }
        Self(draw.next())
    }

    /// 64 bits.
    #[allow(clippy::should_implement_trait)] // there is always a next one
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform among `0..count`.
    ///
    /// # Panics
    ///
    /// If there is nothing to choose from.
    pub fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "draw: nothing to choose from");
        // The high half of a 128-bit product (Lemire 2019). What that favours some numbers
        // by is below 2^-32 for any count that fits in memory.
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// Uniform in `least..=most`.
    pub fn within(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// One of them.
    pub fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// Puts them into any order, each as likely as another (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }

    /// Uniform in `[0, 1)`.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// `count` normal numbers of the given spread, by Box and Muller, rounded to `f32` so that
    /// different programs start from exactly the same inputs.
    pub fn normals(&mut self, count: usize, spread: f64) -> Vec<f32> {
        let mut normal = || {
            let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.uniform()).cos()
        };
        (0..count).map(|_| (normal() * spread) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_splitmix64() {
        // The reference program's first numbers from the state 1234567.
        let mut draw = Draw(1_234_567);
        let drawn = [draw.next(), draw.next(), draw.next()];
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn each_seed_name_and_index_has_its_own_stream() {
        let first = |seed, name, index| Draw::new(seed, name, index).next();
        let streams = [
            first(0, "a", 0),
            first(1, "a", 0),
            first(0, "b", 0),
            first(0, "a", 1),
            first(1, "a", 1),
            Draw::named("a").next(),
            Draw::named("b").next(),
        ];
        for (at, one) in streams.iter().enumerate() {
            assert!(!streams[..at].contains(one));
        }
        assert_eq!(first(3, "a", 5), first(3, "a", 5));
    }

    #[test]
    fn every_number_below_comes_about_as_often() {
        let mut draw = Draw::new(7, "below", 0);
        let mut counts = [0_usize; 6];
        for _ in 0..60_000 {
            counts[draw.below(6)] += 1;
        }
        // Five standard deviations of a count: 5 · sqrt(60000 · 1/6 · 5/6).
        for count in counts {
            assert!(count.abs_diff(10_000) < 457, "{counts:?}");
        }
    }

    #[test]
    fn a_shuffle_loses_nothing_and_puts_anything_anywhere() {
        let mut seen = [[false; 5]; 5];
        for index in 0..200 {
            let mut items = [0, 1, 2, 3, 4];
            Draw::new(0, "shuffle", index).shuffle(&mut items);
            for (at, item) in items.into_iter().enumerate() {
                seen[at][item] = true;
            }
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3, 4]);
        }
        assert_eq!(seen, [[true; 5]; 5]);
    }

    #[test]
    fn normals_have_mean_zero_and_the_spread_asked_for() {
        let drawn = Draw::named("moments").normals(40_000, 3.0);
        let mean = drawn.iter().map(|&x| f64::from(x)).sum::<f64>() / drawn.len() as f64;
        let squares = drawn.iter().map(|&x| (f64::from(x) - mean).powi(2));
        let variance = squares.sum::<f64>() / drawn.len() as f64;
        // Four standard errors: 3/sqrt(40000) for the mean, 9*sqrt(2/40000) for the variance.
        assert!(mean.abs() < 0.06, "mean {mean}");
        assert!((variance - 9.0).abs() < 0.26, "variance {variance}");
    }
}
