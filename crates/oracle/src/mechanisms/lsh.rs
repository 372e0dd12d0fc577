use zoo_spec::Lsh;

use super::Parameter;
use super::{Definition, Parameters};
use crate::hashed::Hashing;
use crate::{Formula, Problem};

impl Definition for Lsh {
    fn given(&self, problem: &Problem, parameters: &Parameters<'_>) -> Option<Problem> {
        let is_its_own = problem.seq_q == problem.seq_k && problem.kv_heads == problem.heads;
        // They would have to be sorted, too.
        let has_positions = problem.alibi || problem.bias.is_some() || problem.dropout.is_some();
        (is_its_own && !has_positions).then(|| {
            problem.by(Formula::Hashed(Hashing {
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
