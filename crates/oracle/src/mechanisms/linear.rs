use zoo_spec::{Linear, LinearFeatures};

use super::{Definition, Parameters};
use crate::formula::FeatureMap;
use crate::{Formula, Problem};

impl Definition for Linear {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        problem.with_linear_formula(Formula::Linear(match self.features {
            LinearFeatures::Elu1 => FeatureMap::Elu1,
            LinearFeatures::Relu => FeatureMap::Relu,
        }))
    }
}
