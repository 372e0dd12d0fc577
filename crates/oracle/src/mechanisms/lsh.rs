use zoo_spec::Lsh;

use super::{Definition, Parameter, Parameters};
use crate::lsh::Hashing;
use crate::{Formula, Problem};

impl Definition for Lsh {
    fn apply(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let is_self_attention = problem.seq_q == problem.seq_k && problem.kv_heads == problem.heads;
        // These depend on positions and would have to be sorted with the keys.
        let has_unsorted = problem.alibi || problem.bias.is_some() || problem.dropout.is_some();
        (is_self_attention && !has_unsorted).then(|| {
            problem.clone().with_formula(Formula::Lsh(Hashing {
                bucket: self.bucket,
                rounds: self.rounds,
                directions: parameters(Parameter::HashDirections {
                    hashing: *self,
                    seq: problem.seq_k,
                    d_head: problem.d_head,
                }),
                hashes: parameters(Parameter::Hashes {
                    hashing: *self,
                    queries: problem.queries(),
                }),
            }))
        })
    }
}
