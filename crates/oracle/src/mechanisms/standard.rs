use zoo_spec::Standard;

use super::{Definition, Parameters};
use crate::Problem;

impl Definition for Standard {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.clone())
    }
}
