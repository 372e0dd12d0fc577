use zoo_spec::Performer;

use super::{Definition, Parameter, Parameters};
use crate::formula::FeatureMap;
use crate::{Formula, Problem};

impl Definition for Performer {
    fn apply(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let directions = parameters(Parameter::Directions {
            count: self.features,
            seed: self.seed,
            d_head: problem.d_head,
        });
        problem.with_linear_formula(Formula::Linear(FeatureMap::Random { directions }))
    }
}
