use zoo_spec::Fixed;

use super::rounded_root;
use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for Fixed {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let block = self.block.unwrap_or_else(|| rounded_root(problem.seq_k));
        let summaries = Mask::Summaries {
            block,
            summary: self.summary,
        };
        Some(problem.seeing(Mask::Any(vec![Mask::Block(block), summaries])))
    }
}
