use zoo_spec::Longformer;

use super::both_sides;
use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for Longformer {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let global = (0..self.global.min(problem.seq_k)).collect();
        let near = both_sides(self.window);
        Some(problem.seeing(Mask::Any(vec![near, Mask::Global(global)])))
    }
}
