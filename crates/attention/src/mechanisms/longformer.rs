//! A sliding window and global tokens at the start of the sequence.
//!
//! Beltagy et al., [Longformer](https://arxiv.org/abs/2004.05150), 2020.

use zoo_spec::Longformer;

use super::Attention;
use crate::Pattern;

impl Attention for Longformer {
    fn pattern(&self, seq_k: usize) -> Option<Pattern> {
        let global: Vec<usize> = (0..self.global.min(seq_k)).collect();
        Some(Pattern::longformer(self.window, global))
    }
}
