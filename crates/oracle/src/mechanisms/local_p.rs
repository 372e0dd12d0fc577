use zoo_spec::LocalP;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for LocalP {
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        Some(problem.by(Formula::Predicted {
            vectors: parameters(problem.vector()),
            matrices: parameters(problem.matrix()),
            window: self.window,
        }))
    }
}
