use zoo_spec::SlidingWindow;

use super::{Definition, Parameters, symmetric_window};
use crate::Problem;

impl Definition for SlidingWindow {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        Some(problem.and_mask(symmetric_window(self.window)))
    }
}
