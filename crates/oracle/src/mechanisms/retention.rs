use zoo_spec::Retention;

use super::{Definition, Parameters, has_causal};
use crate::{Formula, Problem};

impl Definition for Retention {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        if !has_causal(&problem.mask) {
            return None;
        }
        // Each head half as far from remembering everything as the last.
        let decays = (0..problem.kv_heads).map(|head| 1.0 - 0.5f64.powi(5 + head as i32));
        problem.without_scores(Formula::Retention(decays.collect()))
    }
}
