use zoo_spec::LocalM;

use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for LocalM {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.and_mask(Mask::Monotonic(self.window)))
    }
}
