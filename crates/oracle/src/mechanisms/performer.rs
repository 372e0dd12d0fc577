use zoo_spec::Performer;

use super::Parameter;
use super::{Definition, Parameters};
use crate::formula::Features;
use crate::{Formula, Problem};

impl Definition for Performer {
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let directions = parameters(Parameter::Directions {
            count: self.features,
            seed: self.seed,
            d_head: problem.d_head,
        });
        problem.without_scores(Formula::Features(Features::Random { directions }))
    }
}
