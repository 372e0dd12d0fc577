use zoo_spec::Additive;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for Additive {
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let vectors = parameters(problem.vector());
        Some(problem.by(Formula::Additive(vectors)))
    }
}
