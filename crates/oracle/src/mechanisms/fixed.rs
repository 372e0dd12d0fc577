use zoo_spec::Fixed;

use super::{Definition, Parameters, rounded_sqrt};
use crate::{Mask, Problem};

impl Definition for Fixed {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let block = self.block.unwrap_or_else(|| rounded_sqrt(problem.seq_k));
        let summary_columns = Mask::SummaryColumns {
            block,
            summary: self.summary,
        };
        Some(problem.and_mask(Mask::Any(vec![Mask::Block(block), summary_columns])))
    }
}
