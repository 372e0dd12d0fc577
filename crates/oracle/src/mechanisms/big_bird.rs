use zoo_spec::BigBird;

use super::{Definition, Parameters};
use crate::dropout::splitmix;
use crate::{Mask, Problem};

impl Definition for BigBird {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let blocks = problem.seq_k.div_ceil(self.block);
        let sizes = [self.neighbours, self.global, self.random];
        let visible = (0..blocks).map(|own| visible_blocks(own, blocks, sizes, self.seed));
        Some(problem.and_mask(Mask::BlockSparse {
            size: self.block,
            visible: visible.collect(),
        }))
    }
}

/// Key blocks that a query block attends to: its neighbours, the global blocks at both ends, and
/// `random` of the others, those with the smallest hashes.
fn visible_blocks(
    own: usize,
    blocks: usize,
    [neighbours, global, random]: [usize; 3],
    seed: u64,
) -> Vec<usize> {
    let is_global = |block: usize| block < global || blocks - block <= global;
    let mut others: Vec<(u64, usize)> = Vec::new();
    let mut visible = Vec::new();
    for block in 0..blocks {
        if is_global(own) || is_global(block) || own.abs_diff(block) <= neighbours {
            visible.push(block);
        } else {
            let hash = splitmix(splitmix(seed.wrapping_add(own as u64)).wrapping_add(block as u64));
            others.push((hash, block));
        }
    }
    others.sort_unstable();
    visible.extend(others.into_iter().take(random).map(|(_, block)| block));
    visible
}
