use zoo_spec::GroupedQuery;

use super::{Definition, Parameters};
use crate::Problem;

impl Definition for GroupedQuery {
    fn given(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let is_its_own = self.kv_heads(problem.heads) == Some(problem.kv_heads);
        is_its_own.then(|| problem.clone())
    }

    fn kv_heads(&self, heads: usize) -> Option<usize> {
        // The largest divisor that leaves at least four query heads to each, or else 1.
        let shares = |kv_heads: &usize| heads.is_multiple_of(*kv_heads) && heads / kv_heads >= 4;
        self.kv_heads
            .or_else(|| (1..=heads).filter(shares).max())
            .or(Some(1))
    }
}
