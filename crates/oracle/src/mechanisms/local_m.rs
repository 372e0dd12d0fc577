use zoo_spec::LocalM;

use super::{Definition, Parameters};
use crate::{Mask, Problem};

impl Definition for LocalM {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.seeing(Mask::Monotonic(self.window)))
    }
}
