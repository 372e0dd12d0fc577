//! Neighbours, a few places for everyone, and a few blocks at random:
//! Zaheer et al., [Big Bird](https://arxiv.org/abs/2007.14062), 2020.

use super::Pattern;
use crate::counter::mix;

/// What blocks a block of queries sees. The defaults are those of the paper's base
/// models but for the seed: blocks of 64, one neighbour on either side, the first and
/// the last block for everyone, three at random.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BigBird {
    /// Places in a block.
    pub block: usize,
    /// Blocks seen on either side of its own.
    pub neighbours: usize,
    /// Blocks at the beginning, and as many at the end, that see all and are seen by all.
    pub global: usize,
    /// Blocks seen at random besides.
    pub random: usize,
    /// Which ones.
    pub seed: u64,
}

impl Default for BigBird {
    fn default() -> Self {
        Self {
            block: 64,
            neighbours: 1,
            global: 1,
            random: 3,
            seed: 0,
        }
    }
}

impl BigBird {
    /// The pattern for sequences of `seq_k` keys; the same every time for the same seed.
    ///
    /// # Panics
    ///
    /// If the blocks have no size.
    pub fn pattern(&self, seq_k: usize) -> Pattern {
        assert!(
            self.block > 0,
            "the blocks of a big bird must have a size, got 0"
        );
        let blocks = seq_k.div_ceil(self.block);
        let is_global = |block: usize| block < self.global || block + self.global >= blocks;
        let seen = (0..blocks).map(|own| {
            let is_structured = |other: usize| {
                is_global(own) || is_global(other) || own.abs_diff(other) <= self.neighbours
            };
            let (mut seen, mut others): (Vec<usize>, Vec<usize>) =
                (0..blocks).partition(|&other| is_structured(other));
            // The first so many of the others in a random order of theirs.
            let order = |&other: &usize| {
                mix(mix(self.seed.wrapping_add(own as u64)).wrapping_add(other as u64))
            };
            others.sort_by_cached_key(order);
            seen.extend(others.into_iter().take(self.random));
            seen
        });
        Pattern::Blocks {
            size: self.block,
            seen: seen.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(bird: BigBird, seq_k: usize) -> Vec<Vec<usize>> {
        match bird.pattern(seq_k) {
            Pattern::Blocks { seen, .. } => seen,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_block_sees_its_neighbours_the_ends_and_some_at_random() {
        let seen = blocks(BigBird::default(), 64 * 20 - 5);
        assert_eq!(seen.len(), 20);
        for (own, seen) in seen.iter().enumerate() {
            if [0, 19].contains(&own) {
                assert_eq!(seen.len(), 20);
                continue;
            }
            for other in [0, own - 1, own, own + 1, 19] {
                assert!(seen.contains(&other), "{own} does not see {other}");
            }
            let mut distinct = seen.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), seen.len());
            // The neighbours of the second block are one of the ends already.
            let structured = if [1, 18].contains(&own) { 4 } else { 5 };
            assert_eq!(seen.len(), structured + 3, "block {own}");
        }
    }

    #[test]
    fn the_seed_decides_which() {
        let of = |seed| {
            let bird = BigBird {
                seed,
                ..BigBird::default()
            };
            blocks(bird, 64 * 30)
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }
}
