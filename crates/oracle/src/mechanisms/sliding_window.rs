use zoo_spec::SlidingWindow;

use super::both_sides;
use super::{Definition, Parameters};
use crate::Problem;

impl Definition for SlidingWindow {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.seeing(both_sides(self.window)))
    }
}
