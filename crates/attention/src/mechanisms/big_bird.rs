//! Neighbouring, global and random blocks.
//!
//! Zaheer et al., [Big Bird](https://arxiv.org/abs/2007.14062), 2020.

use zoo_spec::BigBird;

use super::Attention;
use crate::Pattern;
use crate::counter::mix;
use crate::kept::Kept;

impl Attention for BigBird {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        static KEPT: Kept<([usize; 5], u64), Pattern> = Kept::new();
        let sizes = [self.block, self.neighbours, self.global, self.random, seq_k];
        let pattern = KEPT.get((sizes, self.seed), |_| Pattern::big_bird(self, seq_k));
        Some(pattern.as_ref().clone())
    }
}

impl Pattern {
    /// The blocks of [`BigBird`] for `seq_k` keys; they depend on its seed only.
    ///
    /// # Panics
    ///
    /// If the blocks have no size.
    pub fn big_bird(bird: &BigBird, seq_k: usize) -> Self {
        assert!(
            bird.block > 0,
            "the blocks of a big bird must have a size, got 0"
        );
        let blocks = seq_k.div_ceil(bird.block);
        let is_global = |block: usize| block < bird.global || block + bird.global >= blocks;
        let seen = (0..blocks).map(|own| {
            let is_structured = |other: usize| {
                is_global(own) || is_global(other) || own.abs_diff(other) <= bird.neighbours
            };
            let (mut seen, mut others): (Vec<usize>, Vec<usize>) =
                (0..blocks).partition(|&other| is_structured(other));
            // The first so many of the others in a random order of theirs.
            let order = |&other: &usize| {
                mix(mix(bird.seed.wrapping_add(own as u64)).wrapping_add(other as u64))
            };
            others.sort_by_cached_key(order);
            seen.extend(others.into_iter().take(bird.random));
            seen
        });
        Self::Blocks {
            size: bird.block,
            seen: seen.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(bird: BigBird, seq_k: usize) -> Vec<Vec<usize>> {
        match Pattern::big_bird(&bird, seq_k) {
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
