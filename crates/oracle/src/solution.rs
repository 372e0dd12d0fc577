//! Solutions of attention problems, and the functions that compute them.

use crate::block_selection::solve_block_selection;
use crate::differential::solve_differential;
use crate::formula::{Formula, RelativeTable};
use crate::gated::solve_gated;
use crate::linear::solve_linear;
use crate::linformer::{Projections, solve_linformer};
use crate::lsh::solve_lsh;
use crate::native_sparse::{GatedBranches, solve_native_sparse};
use crate::nystrom::solve_nystrom;
use crate::problem::{Inputs, Problem};
use crate::scores::solve_scores;

/// Context, weights and gradients of some queries of a problem, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// `[queries, d_value]`
    pub context: Vec<f64>,
    /// `[queries, seq_k]`
    pub weights: Vec<f64>,
    /// `[queries]`; minus infinity for a fully masked query.
    pub log_sum_exp: Vec<f64>,
    /// Largest absolute score, or term of a score, which bounds the error in `f32`.
    pub largest_score: f64,
    /// Smallest margin of a selection of keys, as a difference of scores or positions. Below the
    /// rounding error of `f32`, both outcomes are correct. Infinite if no keys are selected.
    pub margin: f64,
    /// Largest terms of the gradients.
    pub terms: Terms,
    /// `[queries, d_head]`
    pub d_query: Vec<f64>,
    /// `[batch, heads, seq_q, d_head]`: gradient of all queries through the keys, for mechanisms
    /// whose keys are the queries; empty otherwise.
    pub d_query_as_key: Vec<f64>,
    /// `[batch, kv_heads, seq_k, d_head]`
    pub d_key: Vec<f64>,
    /// `[batch, kv_heads, seq_k, d_value]`
    pub d_value: Vec<f64>,
    /// Shape of the problem's bias; empty if it has none.
    pub d_bias: Vec<f64>,
    /// Gradient of sinks, of biases of relative positions, of the logarithms of decays, of projections
    /// along the sequence, of gates of branches, or of the vectors of differential attention, in the shape of the
    /// parameter. Of a recurrence, those of the decays, then those of the strengths.
    pub d_parameter: Vec<f64>,
    /// `[heads, d_head]`: gradient of the vectors of an additive score or of predicted positions.
    pub d_vector: Vec<f64>,
    /// `[heads, d_head, d_head]`: gradient of the matrices of a multiplicative score or of
    /// predicted positions.
    pub d_matrix: Vec<f64>,
}

/// Largest absolute terms of sums that give the gradients. If terms cancel, the result is much
/// smaller than they are, but is rounded like them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// Terms of the query gradient.
    pub d_query: f64,
    /// Terms of the key gradient.
    pub d_key: f64,
    /// Terms of the bias gradient. If the bias is broadcast, the root of the sum of their squares,
    /// since rounding errors of many terms add up like that.
    pub d_bias: f64,
    /// Terms of the gradient of the vectors of predicted positions.
    pub d_vector: f64,
    /// Sum of the terms of an element of [`Solution::d_parameter`].
    pub d_parameter: f64,
}

impl Solution {
    pub(crate) fn zeros(problem: &Problem, inputs: &Inputs, queries: usize) -> Self {
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
            d_parameter: match &problem.formula {
                Formula::Sink(values)
                | Formula::Forgetting(values)
                | Formula::Relative(RelativeTable { values, .. })
                | Formula::Linformer(Projections { values, .. })
                | Formula::NativeSparse(GatedBranches { gates: values, .. })
                | Formula::Differential {
                    vectors: values, ..
                } => vec![0.0; values.len()],
                Formula::Gated(gates) => vec![0.0; gates.log_decays.len() + gates.strengths.len()],
                _ => Vec::new(),
            },
            d_vector: match &problem.formula {
                Formula::Additive(vectors) | Formula::LocalPredictive { vectors, .. } => {
                    vec![0.0; vectors.len()]
                }
                _ => Vec::new(),
            },
            d_matrix: match &problem.formula {
                Formula::Multiplicative(matrices) | Formula::LocalPredictive { matrices, .. } => {
                    vec![0.0; matrices.len()]
                }
                _ => Vec::new(),
            },
        }
    }
}

/// Solves `problem` for `inputs` and computes the gradients of `Σ output_grad · context` with
/// respect to every input. Queries are `[batch, heads, seq_q]`.
pub fn solve(problem: &Problem, inputs: &Inputs) -> Solution {
    let all: Vec<usize> = (0..problem.queries()).collect();
    solve_for(problem, inputs, &all)
}

/// Solves `problem` for some of its queries, given as indices into `[batch, heads, seq_q]`. The
/// gradients are those of `Σ output_grad · context` over these queries.
pub fn solve_for(problem: &Problem, inputs: &Inputs, queries: &[usize]) -> Solution {
    match &problem.formula {
        Formula::Softmax
        | Formula::Additive(_)
        | Formula::Multiplicative(_)
        | Formula::LocalPredictive { .. }
        | Formula::Sink(_)
        | Formula::Sigmoid(_)
        | Formula::Relative(_)
        | Formula::Forgetting(_)
        | Formula::Argmax
        | Formula::Sampled { .. } => solve_scores(problem, inputs, queries, None, &|_, _| {}),
        Formula::Differential {
            vectors,
            lambda_init,
        } => solve_differential(problem, vectors, *lambda_init, inputs, queries),
        Formula::Lsh(hashing) => solve_lsh(problem, hashing, inputs, queries),
        &Formula::BlockSelection(selection) => {
            solve_block_selection(problem, selection, inputs, queries)
        }
        Formula::NativeSparse(branches) => solve_native_sparse(problem, branches, inputs, queries),
        Formula::Linear(features) => solve_linear(problem, Some(features), &[], inputs, queries),
        Formula::Retention(decays) => solve_linear(problem, None, decays, inputs, queries),
        Formula::Gated(gates) => solve_gated(problem, gates, inputs, queries),
        &Formula::Nystrom {
            landmarks,
            iterations,
        } => solve_nystrom(problem, [landmarks, iterations], inputs, queries),
        Formula::Linformer(projections) => solve_linformer(problem, projections, inputs, queries),
    }
}

pub(crate) fn vector(tensor: &[f32], row: usize, width: usize) -> Vec<f64> {
    tensor[row * width..][..width]
        .iter()
        .map(|&x| f64::from(x))
        .collect()
}

pub(crate) fn head_matrix(matrices: &[f32], head: usize, width: usize) -> Vec<Vec<f64>> {
    (0..width)
        .map(|x| vector(matrices, head * width + x, width))
        .collect()
}

pub(crate) fn vec_mat(x: &[f64], matrix: &[Vec<f64>]) -> Vec<f64> {
    let mut product = vec![0.0; x.len()];
    for (x, row) in x.iter().zip(matrix) {
        add(&mut product, *x, row);
    }
    product
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `sum += factor * vector`
pub(crate) fn add(sum: &mut [f64], factor: f64, vector: &[f64]) {
    for (sum, x) in sum.iter_mut().zip(vector) {
        *sum += factor * x;
    }
}

/// `matrix[row] += factor * vector`
pub(crate) fn add_row(matrix: &mut [f64], row: usize, factor: f64, vector: &[f64]) {
    let width = vector.len();
    add(&mut matrix[row * width..][..width], factor, vector);
}

pub(crate) fn max_abs(values: &[f32]) -> f64 {
    f64::from(values.iter().fold(0f32, |max, x| max.max(x.abs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    /// Computed by hand: q·k gives scores 0 and ln 3, so the weights are 1/4 and 3/4.
    #[test]
    fn two_keys_by_hand() {
        let problem = Problem::new("by hand", [1, 1, 1, 2, 1]).with_scale(1.0);
        let inputs = Inputs {
            query: vec![1.0],
            key: vec![0.0, 3f32.ln()],
            value: vec![4.0, 8.0],
            output_grad: vec![1.0],
            bias: vec![],
        };
        let solution = solve(&problem, &inputs);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(close(solution.weights[0], 0.25) && close(solution.weights[1], 0.75));
        assert!(close(solution.context[0], 7.0));
        assert!(close(solution.log_sum_exp[0], 4f64.ln()));
        assert!(close(solution.d_value[0], 0.25) && close(solution.d_value[1], 0.75));
        // ds = p (v - o): 1/4·(4-7) and 3/4·(8-7).
        assert!(close(solution.d_key[0], -0.75) && close(solution.d_key[1], 0.75));
        assert!(close(solution.d_query[0], 0.75 * 3f64.ln()));
    }

    #[test]
    fn weights_of_a_row_sum_to_one_or_zero() {
        for problem in catalogue() {
            let (name, solution) = (problem.name, solve(&problem, &problem.inputs()));
            for (row, weights) in solution.weights.chunks(problem.seq_k).enumerate() {
                let is_fully_masked = problem.mask_row(row).iter().all(|&masked| masked);
                let sum: f64 = weights.iter().sum();
                let expected = if is_fully_masked { 0.0 } else { 1.0 };
                assert!((sum - expected).abs() < 1e-12, "{name} row {row}: {sum}");
            }
        }
    }

    /// Solving a few queries equals solving all of them with the output gradient of the others at
    /// zero.
    #[test]
    fn sampled_queries_match_the_full_solution() {
        for problem in catalogue() {
            let queries = problem.sample_queries(5);
            let mut inputs = problem.inputs();
            let sampled = solve_for(&problem, &inputs, &queries);
            inputs.zero_output_grad_except(&queries, problem.d_value);
            let all = solve(&problem, &inputs);
            for (i, &row) in queries.iter().enumerate() {
                let (d_head, d_value) = (problem.d_head, problem.d_value);
                let pairs = [
                    (&sampled.context, &all.context, d_value),
                    (&sampled.d_query, &all.d_query, d_head),
                    (&sampled.weights, &all.weights, problem.seq_k),
                ];
                for (sampled, all, width) in pairs {
                    assert_eq!(sampled[i * width..][..width], all[row * width..][..width]);
                }
            }
            assert_eq!((sampled.d_key, sampled.d_value), (all.d_key, all.d_value));
        }
    }
}
