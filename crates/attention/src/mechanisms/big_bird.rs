//! Sliding-window, global and random blocks.
//!
//! Zaheer et al., [Big Bird](https://arxiv.org/abs/2007.14062), 2020.

use zoo_spec::BigBird;

use super::Attention;
use crate::Pattern;
use crate::counter::mix;
use crate::memo::Memo;

impl Attention for BigBird {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        static MEMO: Memo<([usize; 5], u64), Pattern> = Memo::new();
        let sizes = [
            self.block_size,
            self.neighbours,
            self.global,
            self.random,
            seq_k,
        ];
        let pattern = MEMO.get((sizes, self.seed), |_| Pattern::big_bird(self, seq_k));
        Some(pattern.as_ref().clone())
    }
}

impl Pattern {
    /// The blocks of [`BigBird`] for `seq_k` keys; the random ones depend only on its seed.
    ///
    /// # Panics
    ///
    /// If the block size is zero.
    pub fn big_bird(bird: &BigBird, seq_k: usize) -> Self {
        assert!(
            bird.block_size > 0,
            "big bird: the block size must be at least 1, got 0"
        );
        let blocks = seq_k.div_ceil(bird.block_size);
        let is_global = |block: usize| block < bird.global || block + bird.global >= blocks;
        let visible = (0..blocks).map(|own| {
            let is_structured = |other: usize| {
                is_global(own) || is_global(other) || own.abs_diff(other) <= bird.neighbours
            };
            let (mut visible, mut others): (Vec<usize>, Vec<usize>) =
                (0..blocks).partition(|&other| is_structured(other));
            // The first of the others in a random order.
            let order = |&other: &usize| {
                mix(mix(bird.seed.wrapping_add(own as u64)).wrapping_add(other as u64))
            };
            others.sort_by_cached_key(order);
            visible.extend(others.into_iter().take(bird.random));
            visible
        });
        Self::Blocks {
            size: bird.block_size,
            visible: visible.collect(),
        }
    }
}
