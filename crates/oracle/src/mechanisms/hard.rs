use zoo_spec::Hard;

use super::{Definition, Parameters};
use crate::{Formula, Problem};

impl Definition for Hard {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.clone().with_formula(Formula::Sampled {
            temperature: self.temperature,
            seed: self.seed,
        }))
    }
}
