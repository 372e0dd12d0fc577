use zoo_spec::Strided;

use super::{Definition, Parameters};
use super::{both_sides, rounded_root};
use crate::{Mask, Problem};

impl Definition for Strided {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let stride = self.stride.unwrap_or_else(|| rounded_root(problem.seq_k));
        let near = both_sides(stride - 1);
        Some(problem.seeing(Mask::Any(vec![near, Mask::Strided(stride)])))
    }
}
