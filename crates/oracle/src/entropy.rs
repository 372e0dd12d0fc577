//! How spread out the weights of each query are, by definition, in `f64`, with its
//! gradients by hand:
//!
//! ```text
//! H_i   = -Σ_j p_ij ln p_ij
//! ds_ij = -dH_i p_ij (ln p_ij + H_i)
//! ```

use crate::formula::Formula;
use crate::oracle::{add_row, dot, solve, vector};
use crate::problem::{Inputs, Problem};
use crate::scores::Row;

/// What [`entropy`] finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Entropies {
    /// `[batch, heads, seq_q]`; zero for a query that sees nothing.
    pub entropy: Vec<f64>,
    /// Of queries, `[batch, heads, seq_q]`, whether they see anything.
    pub sees: Vec<bool>,
    /// The largest score, which is how large the numbers are that entropy is the
    /// difference of.
    pub largest_score: f64,
    /// The gradient of `Σ upstream · entropy` by queries.
    pub d_query: Vec<f64>,
    /// And by keys.
    pub d_key: Vec<f64>,
}

/// The entropy of a softmax problem's weights before any are dropped, and the gradients of
/// `Σ upstream · entropy`, with a number for each query.
///
/// # Panics
///
/// If the problem's weights are no softmax of products.
pub fn entropy(problem: &Problem, inputs: &Inputs, upstream: &[f64]) -> Entropies {
    assert!(
        problem.formula == Formula::Softmax,
        "only softmax problems have this gradient"
    );
    let (d_head, seq_k) = (problem.d_head, problem.seq_k);
    let answer = solve(problem, inputs);
    let mut found = Entropies {
        entropy: Vec::new(),
        sees: Vec::new(),
        largest_score: answer.largest_score,
        d_query: vec![0.0; inputs.query.len()],
        d_key: vec![0.0; inputs.key.len()],
    };
    for (row, upstream) in upstream.iter().enumerate() {
        let weights = &answer.weights[row * seq_k..][..seq_k];
        // p ln p is nothing where p is.
        let terms = weights.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln());
        let entropy = -terms.sum::<f64>();
        found.entropy.push(entropy);
        let Row {
            seen, first_key, ..
        } = Row::of(problem, row);
        found.sees.push(!seen.is_empty());
        let query = vector(&inputs.query, row, d_head);
        for (j, &p) in weights.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let key = vector(&inputs.key, first_key + j, d_head);
            let bend = match problem.softcap {
                Some(cap) => 1.0 - (problem.scale() * dot(&query, &key) / cap).tanh().powi(2),
                None => 1.0,
            };
            let d_score = -upstream * p * (p.ln() + entropy);
            let d_product = problem.scale() * bend * d_score;
            add_row(&mut found.d_query, row, d_product, &key);
            add_row(&mut found.d_key, first_key + j, d_product, &query);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::differences::{CLOSE, assert_near, differences};

    #[test]
    fn four_alike_are_two_bits() {
        let problem = Problem::new("alike", [1, 1, 1, 4, 2]);
        let inputs = Inputs {
            key: vec![0.5; 8],
            ..problem.inputs()
        };
        let found = entropy(&problem, &inputs, &[1.0]);
        assert!((found.entropy[0] - 4f64.ln()).abs() < 1e-12);
        assert!(found.d_query.iter().all(|d| d.abs() < 1e-12));
    }

    #[test]
    fn gradients_match_central_differences() {
        for problem in catalogue().into_iter().filter(Problem::is_tiny) {
            let inputs = problem.inputs();
            let upstream: Vec<f64> = (0..problem.queries())
                .map(|row| f64::from(inputs.upstream[row * problem.d_value]))
                .collect();
            let loss = |inputs: &Inputs| {
                let entropies = entropy(&problem, inputs, &upstream).entropy;
                dot(&entropies, &upstream)
            };
            let found = entropy(&problem, &inputs, &upstream);
            let [d_query, d_key, ..] = differences(&inputs, loss);
            assert_near(CLOSE, problem.name, "d_query", &found.d_query, &d_query);
            assert_near(CLOSE, problem.name, "d_key", &found.d_key, &d_key);
        }
    }
}
