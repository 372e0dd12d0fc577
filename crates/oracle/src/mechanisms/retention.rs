use zoo_spec::Retention;

use super::{Definition, Parameters, is_causal};
use crate::{Formula, Problem};

impl Definition for Retention {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        if !is_causal(&problem.mask) {
            return None;
        }
        // The distance of the decay from 1 halves with each head.
        let decays = (0..problem.kv_heads).map(|head| 1.0 - 0.5f64.powi(5 + head as i32));
        problem.with_linear_formula(Formula::Retention(decays.collect()))
    }
}
