use zoo_spec::Multiplicative;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for Multiplicative {
    fn apply(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let matrices = parameters(problem.matrix_parameter());
        Some(
            problem
                .clone()
                .with_formula(Formula::Multiplicative(matrices)),
        )
    }
}
