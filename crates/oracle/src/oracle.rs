//! What attention must compute: the problems with their answers, and what solves them.

use crate::formula::Formula;
use crate::hashed::solve_by_hashing;
use crate::problem::{Inputs, Problem};
use crate::products::solve_by_products;
use crate::scores::solve_by_scores;

/// Everything attention computes for some queries of a problem, each tensor row
/// by row.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// `[queries, d_value]`
    pub context: Vec<f64>,
    /// `[queries, seq_k]`
    pub weights: Vec<f64>,
    /// `[queries]`; minus infinity for a query that sees nothing.
    pub log_sum_exp: Vec<f64>,
    /// The largest score by size, which says how far `f32` can be off; of what it is
    /// the sum of, the largest part.
    pub largest_score: f64,
    /// How far the closest choice between keys was from another outcome, as a difference of
    /// scores or of positions: below what `f32` rounds, either is right. Infinite where nothing
    /// is chosen.
    pub margin: f64,
    /// What gradients are the differences of.
    pub terms: Terms,
    /// `[queries, d_head]`
    pub d_query: Vec<f64>,
    /// `[batch, heads, seq_q, d_head]`: by all queries, as the keys that are made of them;
    /// empty where none are.
    pub d_query_as_key: Vec<f64>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub d_key: Vec<f64>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub d_value: Vec<f64>,
    /// In the shape of the problem's bias, if it has one.
    pub d_bias: Vec<f64>,
    /// `[heads, d_head]`: by the vectors of an additive score or of predicted places, if
    /// there are any.
    pub d_vector: Vec<f64>,
    /// `[heads, d_head, d_head]`: by the matrices of a multiplicative score or of predicted
    /// places, likewise.
    pub d_matrix: Vec<f64>,
}

/// The largest numbers that gradients are the differences of. What is left may be far
/// smaller, or nothing, and is still rounded like them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// Of the gradient by queries.
    pub d_query: f64,
    /// By keys.
    pub d_key: f64,
    /// By the bias; where one stands for many, the root of the squares of what it is the sum
    /// of, since roundings of many terms add up like that.
    pub d_bias: f64,
    /// By the vectors of predicted places.
    pub d_vector: f64,
}

impl Answer {
    /// An answer of zeros.
    pub(crate) fn empty(problem: &Problem, inputs: &Inputs, queries: usize) -> Self {
        Self {
            context: vec![0.0; queries * problem.d_value],
            weights: vec![0.0; queries * problem.seq_k],
            log_sum_exp: vec![f64::NEG_INFINITY; queries],
            largest_score: 0.0,
            margin: f64::INFINITY,
            terms: Terms::default(),
            d_query: vec![0.0; queries * problem.d_head],
            d_query_as_key: Vec::new(),
            d_key: vec![0.0; inputs.key.len()],
            d_value: vec![0.0; inputs.value.len()],
            d_bias: vec![0.0; inputs.bias.len()],
            d_vector: match &problem.formula {
                Formula::Additive(vectors) | Formula::Predicted { vectors, .. } => {
                    vec![0.0; vectors.len()]
                }
                _ => Vec::new(),
            },
            d_matrix: match &problem.formula {
                Formula::Multiplicative(matrices) | Formula::Predicted { matrices, .. } => {
                    vec![0.0; matrices.len()]
                }
                _ => Vec::new(),
            },
        }
    }
}

/// Solves `problem` for `inputs`, and takes the gradient of
/// `Σ upstream · context` by every input. Queries are `[batch, heads, seq_q]`.
pub fn solve(problem: &Problem, inputs: &Inputs) -> Answer {
    let all: Vec<usize> = (0..problem.queries()).collect();
    solve_for(problem, inputs, &all)
}

/// Solves `problem` for some of its queries only, counted over
/// `[batch, heads, seq_q]`. The gradients are those of
/// `Σ upstream · context` over these queries.
pub fn solve_for(problem: &Problem, inputs: &Inputs, queries: &[usize]) -> Answer {
    match &problem.formula {
        Formula::Softmax
        | Formula::Additive(_)
        | Formula::Multiplicative(_)
        | Formula::Predicted { .. }
        | Formula::Best
        | Formula::Sampled { .. } => solve_by_scores(problem, inputs, queries, None, &|_, _| {}),
        Formula::Hashed(hashing) => solve_by_hashing(problem, hashing, inputs, queries),
        Formula::Features(features) => {
            solve_by_products(problem, Some(features), &[], inputs, queries)
        }
        Formula::Retention(decays) => solve_by_products(problem, None, decays, inputs, queries),
    }
}

pub(crate) fn vector(tensor: &[f32], row: usize, width: usize) -> Vec<f64> {
    tensor[row * width..][..width]
        .iter()
        .map(|&x| f64::from(x))
        .collect()
}

/// The rows of a head's matrix.
pub(crate) fn matrix_of(matrices: &[f32], head: usize, width: usize) -> Vec<Vec<f64>> {
    (0..width)
        .map(|x| vector(matrices, head * width + x, width))
        .collect()
}

/// A vector times a matrix.
pub(crate) fn times(x: &[f64], matrix: &[Vec<f64>]) -> Vec<f64> {
    let mut product = vec![0.0; x.len()];
    for (x, row) in x.iter().zip(matrix) {
        add(&mut product, *x, row);
    }
    product
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub(crate) fn add(into: &mut [f64], factor: f64, vector: &[f64]) {
    for (into, x) in into.iter_mut().zip(vector) {
        *into += factor * x;
    }
}

/// Adds a vector to a row of a matrix that is as wide.
pub(crate) fn add_row(matrix: &mut [f64], row: usize, factor: f64, vector: &[f64]) {
    let width = vector.len();
    add(&mut matrix[row * width..][..width], factor, vector);
}

/// The largest number by size.
pub(crate) fn largest(numbers: &[f32]) -> f64 {
    f64::from(numbers.iter().fold(0f32, |size, x| size.max(x.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// Worked on paper: q·k gives scores 0 and ln 3, so the weights are 1/4 and 3/4.
    #[test]
    fn two_keys_by_hand() {
        let problem = Problem::new("by hand", [1, 1, 1, 2, 1]).with_scale(1.0);
        let inputs = Inputs {
            query: vec![1.0],
            key: vec![0.0, 3f32.ln()],
            value: vec![4.0, 8.0],
            upstream: vec![1.0],
            bias: vec![],
        };
        let answer = solve(&problem, &inputs);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(answer.weights[0], 0.25) && close(answer.weights[1], 0.75));
        assert!(close(answer.context[0], 7.0));
        assert!(close(answer.log_sum_exp[0], 4f64.ln()));
        assert!(close(answer.d_value[0], 0.25) && close(answer.d_value[1], 0.75));
        // ds = p (v - o): 1/4·(4-7) and 3/4·(8-7).
        assert!(close(answer.d_key[0], -0.75) && close(answer.d_key[1], 0.75));
        assert!(close(answer.d_query[0], 0.75 * 3f64.ln()));
    }

    #[test]
    fn weights_of_a_row_sum_to_one_or_to_nothing() {
        for problem in catalogue() {
            let answer = solve(&problem, &problem.inputs());
            let hidden = problem.hidden();
            for (row, weights) in answer.weights.chunks(problem.seq_k).enumerate() {
                let blind = hidden[row * problem.seq_k..][..problem.seq_k]
                    .iter()
                    .all(|&h| h);
                let sum: f64 = weights.iter().sum();
                let expected = if blind { 0.0 } else { 1.0 };
                assert!(
                    (sum - expected).abs() < 1e-12,
                    "{} row {row}: {sum}",
                    problem.name
                );
            }
        }
    }

    /// A few queries alone: the same answer as all of them with the upstream
    /// gradient of the others at zero.
    #[test]
    fn some_queries_alone_are_answered_as_among_all() {
        for problem in catalogue() {
            let queries = problem.sample_of_queries(5);
            let mut inputs = problem.inputs();
            let alone = solve_for(&problem, &inputs, &queries);
            inputs.keep_upstream_of(&queries, problem.d_value);
            let all = solve(&problem, &inputs);
            for (at, &row) in queries.iter().enumerate() {
                let (d_head, d_value) = (problem.d_head, problem.d_value);
                let pairs = [
                    (&alone.context, &all.context, d_value),
                    (&alone.d_query, &all.d_query, d_head),
                    (&alone.weights, &all.weights, problem.seq_k),
                ];
                for (some, every, width) in pairs {
                    assert_eq!(some[at * width..][..width], every[row * width..][..width]);
                }
            }
            assert_eq!((alone.d_key, alone.d_value), (all.d_key, all.d_value));
        }
    }
}
