//! Linformer attention by definition, in `f64`, with analytic gradients:
//!
//! ```text
//! P = softmax(scale Q (E K)ᵀ)    O = P F V          K and V are zero for masked keys
//!
//! d(F V) = Pᵀ dO    dS = softmax'(dO (F V)ᵀ)    d(E K) = scale dSᵀ Q    dQ = scale dS E K
//! dE = d(E K) Kᵀ    dK = Eᵀ d(E K)              and the same for F and V
//! ```

use crate::matrix::Matrix;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{Solution, add_row, vector};

/// Projections of keys and of values along the sequence, `[2, rank, length]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Projections {
    /// Projected keys.
    pub rank: usize,
    /// Columns, of which a sequence uses the first.
    pub length: usize,
    /// The elements.
    pub values: Vec<f32>,
}

impl Projections {
    /// The columns of visible keys: `[rank, visible]`.
    fn columns(&self, part: usize, visible: &[usize]) -> Matrix {
        let row = |row: usize| {
            let row = vector(&self.values, part * self.rank + row, self.length);
            visible.iter().map(|&j| row[j]).collect()
        };
        Matrix::from_rows((0..self.rank).map(row).collect(), visible.len())
    }

    /// Adds the gradient of these columns to that of all.
    fn add_gradient(&self, all: &mut [f64], part: usize, visible: &[usize], d: &Matrix) {
        for row in 0..self.rank {
            let first = (part * self.rank + row) * self.length;
            for (d, j) in d.row(row).iter().zip(visible) {
                all[first + j] += d;
            }
        }
    }
}

/// Solves `problem` for some of its queries.
pub(crate) fn solve_linformer(
    problem: &Problem,
    projections: &Projections,
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let scale = problem.scale();
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    for head in 0..problem.batch * problem.heads {
        let first = head * problem.seq_q;
        let selected: Vec<(usize, usize)> = (queries.iter().copied().enumerate())
            .filter(|(_, row)| (first..first + problem.seq_q).contains(row))
            .collect();
        let position = Row::new(problem, first);
        let (first_key, visible) = (position.first_key, position.visible);
        if selected.is_empty() || visible.is_empty() {
            continue;
        }
        let rows = |tensor: &[f32], rows: Vec<usize>, width: usize| {
            let rows = rows.into_iter().map(|row| vector(tensor, row, width));
            Matrix::from_rows(rows.collect(), width)
        };
        let query_rows = || selected.iter().map(|(_, row)| *row).collect();
        let key_rows = || visible.iter().map(|j| first_key + j).collect();
        let query = rows(&inputs.query, query_rows(), d_head);
        let d_context = rows(&inputs.output_grad, query_rows(), d_value);
        let keys = rows(&inputs.key, key_rows(), d_head);
        let values = rows(&inputs.value, key_rows(), d_value);
        let [of_keys, of_values] = [0, 1].map(|part| projections.columns(part, &visible));

        let projected_keys = of_keys.product(&keys);
        let projected_values = of_values.product(&values);
        let scores = query.product(&projected_keys.transposed()).times(scale);
        let weights = scores.softmax();
        let context = weights.product(&projected_values);
        let of_pairs = weights.product(&of_values);

        let d_projected_values = weights.transposed().product(&d_context);
        let d_weights = d_context.product(&projected_values.transposed());
        let d_scores = weights.softmax_backward(&d_weights).times(scale);
        let d_query = d_scores.product(&projected_keys);
        let d_projected_keys = d_scores.transposed().product(&query);
        let d_keys = of_keys.transposed().product(&d_projected_keys);
        let d_values = of_values.transposed().product(&d_projected_values);
        let d_of_keys = d_projected_keys.product(&keys.transposed());
        let d_of_values = d_projected_values.product(&values.transposed());

        // Rounding errors of a score are those of the terms of the projected keys.
        let absolute = |matrix: &Matrix| matrix.map(f64::abs);
        let terms = absolute(&of_keys).product(&absolute(&keys));
        let terms = absolute(&query).product(&terms.transposed());
        let largest = scale.abs() * terms.max_abs();
        let value_terms = absolute(&of_values).product(&absolute(&values));
        let growth = value_terms.max_abs() / context.max_abs();
        let largest = largest.max(4.0 * growth);
        solution.largest_score = solution.largest_score.max(largest);
        let d_terms = weights
            .softmax_backward_terms(&d_weights)
            .times(scale.abs());
        let of_query = d_terms.product(&absolute(&projected_keys)).max_abs();
        let of_keys_terms = d_terms.transposed().product(&absolute(&query));
        let of_key = absolute(&of_keys).transposed().product(&of_keys_terms);
        let terms = &mut solution.terms;
        terms.d_query = terms.d_query.max(of_query);
        terms.d_key = terms.d_key.max(of_key.max_abs());

        let gradient = &mut solution.d_parameter;
        projections.add_gradient(gradient, 0, &visible, &d_of_keys);
        projections.add_gradient(gradient, 1, &visible, &d_of_values);
        let d_terms = of_keys_terms.product(&absolute(&keys).transposed());
        let of_values = weights.transposed().product(&absolute(&d_context));
        let of_values = of_values.product(&absolute(&values).transposed());
        solution.terms.d_parameter += d_terms.max_abs() + of_values.max_abs();
        for (row, (index, _)) in selected.iter().enumerate() {
            add_row(&mut solution.context, *index, 1.0, context.row(row));
            add_row(&mut solution.d_query, *index, 1.0, d_query.row(row));
            for (weight, j) in of_pairs.row(row).iter().zip(&visible) {
                solution.weights[index * seq_k + j] = *weight;
            }
        }
        for (row, j) in visible.iter().enumerate() {
            add_row(&mut solution.d_key, first_key + j, 1.0, d_keys.row(row));
            add_row(&mut solution.d_value, first_key + j, 1.0, d_values.row(row));
        }
    }
    solution
}
