use zoo_spec::Longformer;

use super::{Definition, Parameters, symmetric_window};
use crate::{Mask, Problem};

impl Definition for Longformer {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let global = (0..self.global.min(problem.seq_k)).collect();
        let window = symmetric_window(self.window);
        Some(problem.and_mask(Mask::Any(vec![window, Mask::Global(global)])))
    }
}
