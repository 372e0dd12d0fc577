use zoo_spec::MultiQuery;

use super::{Definition, Parameters};
use crate::Problem;

impl Definition for MultiQuery {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        (problem.kv_heads == 1).then(|| problem.clone())
    }

    fn kv_heads(&self, _: usize) -> Option<usize> {
        Some(1)
    }
}
