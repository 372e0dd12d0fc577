use zoo_spec::GroupedQuery;

use super::{Definition, Parameters};
use crate::Problem;

impl Definition for GroupedQuery {
    fn apply(&self, problem: &Problem, _: &Parameters<'_>) -> Option<Problem> {
        let has_own_heads = self.kv_heads(problem.heads) == Some(problem.kv_heads);
        has_own_heads.then(|| problem.clone())
    }

    fn kv_heads(&self, heads: usize) -> Option<usize> {
        // The largest divisor with at least four query heads per KV head, or 1.
        let is_shared = |kv_heads: &usize| heads.is_multiple_of(*kv_heads) && heads / kv_heads >= 4;
        self.n_heads_kv
            .or_else(|| (1..=heads).filter(is_shared).max())
            .or(Some(1))
    }
}
