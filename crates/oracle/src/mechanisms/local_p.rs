use zoo_spec::LocalP;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for LocalP {
    fn apply(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        Some(problem.clone().with_formula(Formula::LocalPredictive {
            vectors: parameters(problem.vector_parameter()),
            matrices: parameters(problem.matrix_parameter()),
            window: self.window,
        }))
    }
}
