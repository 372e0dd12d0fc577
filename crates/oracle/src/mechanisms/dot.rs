use zoo_spec::Dot;

use super::{Definition, Parameters};
use crate::Problem;

impl Definition for Dot {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.clone().with_scale(problem.scale.unwrap_or(1.0)))
    }
}
