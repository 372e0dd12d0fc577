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
