use zoo_spec::BigBird;

use super::{Definition, Parameters};
use crate::dropped::scramble;
use crate::{Mask, Problem};

impl Definition for BigBird {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let blocks = problem.seq_k.div_ceil(self.block);
        let sizes = [self.neighbours, self.global, self.random];
        let seen = (0..blocks).map(|own| seen_by_block(own, blocks, sizes, self.seed));
        Some(problem.seeing(Mask::Blocks {
            size: self.block,
            seen: seen.collect(),
        }))
    }
}

/// The blocks that one of them sees: its neighbours, those at both ends, and so many of
/// the others, in the order of their scrambled numbers.
fn seen_by_block(
    own: usize,
    blocks: usize,
    [neighbours, global, random]: [usize; 3],
    seed: u64,
) -> Vec<usize> {
    let is_end = |block: usize| block < global || blocks - block <= global;
    let mut others: Vec<(u64, usize)> = Vec::new();
    let mut seen = Vec::new();
    for block in 0..blocks {
        if is_end(own) || is_end(block) || own.abs_diff(block) <= neighbours {
            seen.push(block);
        } else {
            let number =
                scramble(scramble(seed.wrapping_add(own as u64)).wrapping_add(block as u64));
            others.push((number, block));
        }
    }
    others.sort_unstable();
    seen.extend(others.into_iter().take(random).map(|(_, block)| block));
    seen
}
