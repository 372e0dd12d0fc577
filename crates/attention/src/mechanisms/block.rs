//! Block-local attention: a query attends to its own block.
//!
//! Qiu et al., [Blockwise Self-Attention](https://arxiv.org/abs/1911.02972), 2019.

use zoo_spec::Block;

use super::Attention;
use crate::Pattern;

impl Attention for Block {
    fn pattern(&self, _: usize) -> Option<Pattern> {
        Some(Pattern::Block {
            size: self.block_size,
        })
    }
}
