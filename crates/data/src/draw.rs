//! Numbers that are random enough and the same on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period.
#[derive(Debug, Clone)]
pub(crate) struct Draw(u64);

impl Draw {
    /// A stream of its own for each seed, name and place: what is drawn at one place does not
    /// depend on how much was drawn at another.
    pub(crate) fn new(seed: u64, name: &str, place: u64) -> Self {
        // FNV-1a: the standard library's hasher may change between releases.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        // Each number is mixed before the next comes in: neighbouring seeds and places
        // would otherwise be the same stream, a few steps apart.
        let mut draw = Self(hash);
        for number in [seed, place] {
            draw = Self(draw.next() ^ number);
        }
        Self(draw.next())
    }

    /// 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
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
    pub(crate) fn below(&mut self, count: usize) -> usize {
        assert!(count > 0, "draw: nothing to choose from");
        // The high half of a 128-bit product (Lemire 2019). What that favours some numbers
        // by is below 2^-32 for any count that fits in memory.
        ((u128::from(self.next()) * count as u128) >> 64) as usize
    }

    /// Uniform in `least..=most`.
    pub(crate) fn within(&mut self, least: usize, most: usize) -> usize {
        least + self.below(most - least + 1)
    }

    /// One of them.
    pub(crate) fn choose<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }

    /// Puts them into any order, each as likely as another (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
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
    fn each_seed_name_and_place_has_its_own_stream() {
        let first = |seed, name, place| Draw::new(seed, name, place).next();
        let streams = [
            first(0, "a", 0),
            first(1, "a", 0),
            first(0, "b", 0),
            first(0, "a", 1),
            first(1, "a", 1),
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
        for place in 0..200 {
            let mut items = [0, 1, 2, 3, 4];
            Draw::new(0, "shuffle", place).shuffle(&mut items);
            for (at, item) in items.into_iter().enumerate() {
                seen[at][item] = true;
            }
            items.sort_unstable();
            assert_eq!(items, [0, 1, 2, 3, 4]);
        }
        assert_eq!(seen, [[true; 5]; 5]);
    }
}
