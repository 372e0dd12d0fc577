//! Differential attention by definition, in `f64`, with analytic gradients:
//!
//! ```text
//! o_i = o¹_i - λ o²_i              softmax attention with each half of queries and keys
//! λ   = exp(a·b) - exp(c·d) + λ_init
//!
//! dλ = -Σ_i do_i · o²_i            da = dλ exp(a·b) b, and so on
//! ```

use crate::formula::Formula;
use crate::problem::{Inputs, Problem};
use crate::scores::solve_scores;
use crate::solution::{Solution, dot, vector};

pub(crate) fn solve_differential(
    problem: &Problem,
    vectors: &[f32],
    lambda_init: f64,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let half = problem.d_head / 2;
    let vectors: Vec<Vec<f64>> = (0..4).map(|row| vector(vectors, row, half)).collect();
    let exponentials = [0, 2].map(|row| dot(&vectors[row], &vectors[row + 1]).exp());
    let lambda = exponentials[0] - exponentials[1] + lambda_init;

    let part = Problem {
        d_head: half,
        formula: Formula::Softmax,
        ..problem.clone()
    };
    let [first, second] = [0, 1].map(|index| {
        let select = |rows: &[f32]| -> Vec<f32> {
            let rows = rows.chunks(problem.d_head);
            rows.flat_map(|row| &row[index * half..][..half])
                .copied()
                .collect()
        };
        let inputs = Inputs {
            query: select(&inputs.query),
            key: select(&inputs.key),
            ..inputs.clone()
        };
        solve_scores(&part, &inputs, queries, None, &|_, _| {})
    });

    let mut solution = Solution::zeros(problem, inputs, queries.len());
    // `first - λ · second`, element by element.
    let difference = |a: &[f64], b: &[f64]| -> Vec<f64> {
        a.iter().zip(b).map(|(a, b)| a - lambda * b).collect()
    };
    let halves = |a: &[f64], b: &[f64]| -> Vec<f64> {
        let rows = a.chunks(half.max(1)).zip(b.chunks(half.max(1)));
        rows.flat_map(|(a, b)| a.iter().copied().chain(b.iter().map(|b| -lambda * b)))
            .collect()
    };
    solution.context = difference(&first.context, &second.context);
    solution.weights = difference(&first.weights, &second.weights);
    solution.d_value = difference(&first.d_value, &second.d_value);
    solution.d_bias = difference(&first.d_bias, &second.d_bias);
    solution.d_query = halves(&first.d_query, &second.d_query);
    solution.d_key = halves(&first.d_key, &second.d_key);
    solution.largest_score = first.largest_score.max(second.largest_score);
    let larger = |a: f64, b: f64| a.max(lambda.abs() * b);
    solution.terms.d_query = larger(first.terms.d_query, second.terms.d_query);
    solution.terms.d_key = larger(first.terms.d_key, second.terms.d_key);
    solution.terms.d_bias = larger(first.terms.d_bias, second.terms.d_bias);

    let mut d_lambda = 0.0;
    for (row, context) in queries.iter().zip(second.context.chunks(problem.d_value)) {
        let output_grad = vector(&inputs.output_grad, *row, problem.d_value);
        d_lambda -= dot(&output_grad, context);
        let terms = output_grad.iter().zip(context).map(|(d, o)| (d * o).abs());
        solution.terms.d_parameter += terms.sum::<f64>();
    }
    let factors = [exponentials[0], -exponentials[1]];
    solution.d_parameter = [1, 0, 3, 2]
        .into_iter()
        .enumerate()
        .flat_map(|(row, other)| {
            let factor = d_lambda * factors[row / 2];
            vectors[other]
                .iter()
                .map(move |x| factor * x)
                .collect::<Vec<_>>()
        })
        .collect();
    solution
}
