use zoo_spec::Additive;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for Additive {
    fn apply(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let vectors = parameters(problem.vector_parameter());
        Some(problem.clone().with_formula(Formula::Additive(vectors)))
    }
}
