use zoo_spec::Block;

use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for Block {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.seeing(Mask::Block(self.size)))
    }
}
