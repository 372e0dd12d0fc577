use zoo_spec::Multiplicative;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for Multiplicative {
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let matrices = parameters(problem.matrix());
        Some(problem.by(Formula::Multiplicative(matrices)))
    }
}
