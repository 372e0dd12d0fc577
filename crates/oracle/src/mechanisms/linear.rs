use zoo_spec::{Linear, LinearFeatures};

use super::{Definition, Parameters};
use crate::formula::Features;
use crate::{Formula, Problem};

impl Definition for Linear {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        problem.without_scores(Formula::Features(match self.features {
            LinearFeatures::Elu1 => Features::Elu1,
            LinearFeatures::Relu => Features::Relu,
        }))
    }
}
