use zoo_spec::Block;

use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for Block {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.and_mask(Mask::Block(self.size)))
    }
}
