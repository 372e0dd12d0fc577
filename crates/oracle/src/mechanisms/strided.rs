use zoo_spec::Strided;

use super::{Definition, Parameters, rounded_sqrt, symmetric_window};
use crate::{Mask, Problem};

impl Definition for Strided {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let stride = self.stride.unwrap_or_else(|| rounded_sqrt(problem.seq_k));
        let window = symmetric_window(stride - 1);
        Some(problem.and_mask(Mask::Any(vec![window, Mask::Strided(stride)])))
    }
}
