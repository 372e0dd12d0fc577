//! A few queries that stand for a problem too large to be solved as a whole.
//!
//! The oracle takes a microsecond for each pair of query and key: at 16,384 of
//! each, the better part of an hour. When the upstream gradient is zero but for
//! a few queries, the gradients by *every* key and value follow from these alone,
//! so a sample of them still checks whole tensors.

use zoo_spec::Draw;

use crate::problem::{Inputs, Problem};

impl Problem {
    /// Queries counted over `[batch, heads, seq_q]`, in order: of each example and
    /// head the first, the last, and others in between, `least` or more in all if
    /// the problem has as many.
    pub fn sample_of_queries(&self, least: usize) -> Vec<usize> {
        let heads = self.batch * self.heads;
        let of_each = least.div_ceil(heads).clamp(1, self.seq_q);
        let mut draw = Draw::named(self.name);
        let mut queries = Vec::new();
        for head in 0..heads {
            let mut places = vec![0, self.seq_q - 1];
            // One from each stretch, so that no part of a long sequence is left out.
            let stretch = self.seq_q as f64 / of_each as f64;
            places.extend((0..of_each).map(|at| ((at as f64 + draw.uniform()) * stretch) as usize));
            places.sort_unstable();
            places.dedup();
            queries.extend(places.into_iter().map(|i| head * self.seq_q + i));
        }
        queries
    }
}

impl Inputs {
    /// Sets the upstream gradient to zero but for the given queries.
    pub fn keep_upstream_of(&mut self, queries: &[usize], d_value: usize) {
        let mut kept = vec![0.0; self.upstream.len()];
        for &row in queries {
            let range = row * d_value..(row + 1) * d_value;
            kept[range.clone()].copy_from_slice(&self.upstream[range]);
        }
        self.upstream = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_head_and_both_ends_are_in_the_sample() {
        let problem = Problem::new("sampled", [2, 3, 1000, 10, 4]);
        let queries = problem.sample_of_queries(60);
        assert!((60..=72).contains(&queries.len()), "{}", queries.len());
        assert!(queries.is_sorted());
        for head in 0..6 {
            assert!(queries.contains(&(head * 1000)) && queries.contains(&(head * 1000 + 999)));
        }
    }

    #[test]
    fn a_small_problem_is_sampled_without_repeats() {
        let problem = Problem::new("small", [1, 1, 2, 3, 4]);
        assert_eq!(problem.sample_of_queries(50), [0, 1]);
    }
}
