//! Entropy of the attention weights of each query in `f64`, with analytic gradients:
//!
//! ```text
//! H_i   = -Σ_j p_ij ln p_ij
//! ds_ij = -dH_i p_ij (ln p_ij + H_i)
//! ```

use crate::formula::Formula;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{add_row, dot, solve, vector};

/// Result of [`entropy`].
#[derive(Debug, Clone, PartialEq)]
pub struct Entropies {
    /// `[batch, heads, seq_q]`; zero for a fully masked query.
    pub entropy: Vec<f64>,
    /// `[batch, heads, seq_q]`: whether the query has visible keys.
    pub has_keys: Vec<bool>,
    /// Largest absolute score. Entropy is a difference of terms of this size.
    pub largest_score: f64,
    /// Gradient of `Σ output_grad · entropy` with respect to the queries.
    pub d_query: Vec<f64>,
    /// Gradient with respect to the keys.
    pub d_key: Vec<f64>,
}

/// The entropy of a softmax problem's weights before dropout, and the gradients of
/// `Σ output_grad · entropy`, where `output_grad` has one value per query.
///
/// # Panics
///
/// If the problem's formula is not softmax.
pub fn entropy(problem: &Problem, inputs: &Inputs, output_grad: &[f64]) -> Entropies {
    assert!(
        problem.formula == Formula::Softmax,
        "entropy gradients are implemented for softmax only"
    );
    let (d_head, seq_k) = (problem.d_head, problem.seq_k);
    let solution = solve(problem, inputs);
    let mut result = Entropies {
        entropy: Vec::new(),
        has_keys: Vec::new(),
        largest_score: solution.largest_score,
        d_query: vec![0.0; inputs.query.len()],
        d_key: vec![0.0; inputs.key.len()],
    };
    for (row, d_entropy) in output_grad.iter().enumerate() {
        let weights = &solution.weights[row * seq_k..][..seq_k];
        // p ln p is 0 for p = 0.
        let terms = weights.iter().filter(|&&p| p > 0.0).map(|p| p * p.ln());
        let entropy = -terms.sum::<f64>();
        result.entropy.push(entropy);
        let position = Row::new(problem, row);
        result.has_keys.push(!position.visible.is_empty());
        let query = vector(&inputs.query, row, d_head);
        for (j, &p) in weights.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            let key_row = position.first_key + j;
            let key = vector(&inputs.key, key_row, d_head);
            let softcap_grad = match problem.softcap {
                Some(cap) => 1.0 - (problem.scale() * dot(&query, &key) / cap).tanh().powi(2),
                None => 1.0,
            };
            let d_score = -d_entropy * p * (p.ln() + entropy);
            let d_product = problem.scale() * softcap_grad * d_score;
            add_row(&mut result.d_query, row, d_product, &key);
            add_row(&mut result.d_key, key_row, d_product, &query);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;
    use crate::finite_differences::{RELATIVE, assert_gradient_close, input_gradients};

    #[test]
    fn four_equal_keys_have_two_bits() {
        let problem = Problem::new("alike", [1, 1, 1, 4, 2]);
        let inputs = Inputs {
            key: vec![0.5; 8],
            ..problem.inputs()
        };
        let result = entropy(&problem, &inputs, &[1.0]);
        assert!((result.entropy[0] - 4f64.ln()).abs() < 1e-12);
        assert!(result.d_query.iter().all(|d| d.abs() < 1e-12));
    }

    #[test]
    fn gradients_match_finite_differences() {
        for problem in catalogue().into_iter().filter(Problem::is_tiny) {
            let inputs = problem.inputs();
            let output_grad: Vec<f64> = (0..problem.queries())
                .map(|row| f64::from(inputs.output_grad[row * problem.d_value]))
                .collect();
            let loss = |inputs: &Inputs| {
                let entropies = entropy(&problem, inputs, &output_grad).entropy;
                dot(&entropies, &output_grad)
            };
            let result = entropy(&problem, &inputs, &output_grad);
            let [d_query, d_key, ..] = input_gradients(&inputs, loss);
            let name = problem.name;
            assert_gradient_close(RELATIVE, name, "d_query", &result.d_query, &d_query);
            assert_gradient_close(RELATIVE, name, "d_key", &result.d_key, &d_key);
        }
    }
}
