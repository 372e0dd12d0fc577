//! Nyström attention by definition, in `f64`, with analytic gradients:
//!
//! ```text
//! F = softmax(scale Q K̃ᵀ)    A = softmax(scale Q̃ K̃ᵀ)    B = softmax(scale Q̃ Kᵀ)    O = F Z B V
//! ```
//!
//! over the visible keys, with means of segments `Q̃` and `K̃`. Segments without a visible key have no
//! mean. `Z` is the result of an iteration from `Aᵀ` divided by its largest sum of a column of `A`:
//!
//! ```text
//! X = A Z    Y = 7 - X    U = 15 - X Y    T = 13 - X U    Z' = Z T / 4
//!
//! dT = Zᵀ dZ' / 4    dU = -Xᵀ dT    dY = -Xᵀ dU    dX = -dT Uᵀ - dU Yᵀ - dY
//! dZ = dZ' Tᵀ / 4 + Aᵀ dX    dA += dX Zᵀ
//! ```

use crate::matrix::Matrix;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{Solution, add_row, vector};

/// Solves `problem` for some of its queries.
pub(crate) fn solve_nystrom(
    problem: &Problem,
    [landmarks, iterations]: [usize; 2],
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    solution.d_query_as_key = vec![0.0; inputs.query.len()];
    for head in 0..problem.batch * problem.heads {
        let first = head * problem.seq_q;
        let selected: Vec<(usize, usize)> = (queries.iter().copied().enumerate())
            .filter(|(_, row)| (first..first + problem.seq_q).contains(row))
            .collect();
        if !selected.is_empty() {
            Head::new(problem, landmarks, inputs, first).solve(
                iterations,
                inputs,
                &selected,
                &mut solution,
            );
        }
    }
    solution
}

/// One query head of one example.
struct Head<'a> {
    problem: &'a Problem,
    /// Index of its first query.
    first: usize,
    /// Row of its first key.
    first_key: usize,
    /// The keys that are not masked.
    visible: Vec<usize>,
    query_segments: Vec<Vec<usize>>,
    /// Indices into the visible keys; segments without any are left out.
    key_segments: Vec<Vec<usize>>,
    keys: Matrix,
    values: Matrix,
    query_means: Matrix,
    key_means: Matrix,
}

impl<'a> Head<'a> {
    fn new(problem: &'a Problem, landmarks: usize, inputs: &Inputs, first: usize) -> Self {
        let (d_head, d_value) = (problem.d_head, problem.d_value);
        let Row {
            first_key, visible, ..
        } = Row::new(problem, first);
        let rows = |tensor: &[f32], first: usize, rows: &[usize], width: usize| {
            let rows = rows.iter().map(|row| vector(tensor, first + row, width));
            Matrix::from_rows(rows.collect(), width)
        };
        let all: Vec<usize> = (0..problem.seq_q).collect();
        let queries = rows(&inputs.query, first, &all, d_head);
        let keys = rows(&inputs.key, first_key, &visible, d_head);
        let values = rows(&inputs.value, first_key, &visible, d_value);
        let query_segments = segments(problem.seq_q, landmarks);
        let index = |key: &usize| visible.binary_search(key).ok();
        let key_segments: Vec<Vec<usize>> = segments(problem.seq_k, landmarks)
            .iter()
            .map(|segment| segment.iter().filter_map(index).collect::<Vec<_>>())
            .filter(|segment| !segment.is_empty())
            .collect();
        Self {
            query_means: means(&queries, &query_segments),
            key_means: means(&keys, &key_segments),
            problem,
            first,
            first_key,
            visible,
            query_segments,
            key_segments,
            keys,
            values,
        }
    }

    /// `selected` are indices into the solution, and queries.
    fn solve(
        &self,
        iterations: usize,
        inputs: &Inputs,
        selected: &[(usize, usize)],
        solution: &mut Solution,
    ) {
        let (d_head, d_value) = (self.problem.d_head, self.problem.d_value);
        if self.visible.is_empty() {
            return;
        }
        let rows = |tensor: &[f32], width: usize| {
            let rows = selected.iter().map(|(_, row)| vector(tensor, *row, width));
            Matrix::from_rows(rows.collect(), width)
        };
        let query = rows(&inputs.query, d_head);
        let d_context = rows(&inputs.output_grad, d_value);
        let scale = self.problem.scale();
        let scores = |a: &Matrix, b: &Matrix| a.product(&b.transposed()).times(scale);
        let all_scores = [
            scores(&query, &self.key_means),
            scores(&self.query_means, &self.key_means),
            scores(&self.query_means, &self.keys),
        ];
        let [f, a, b] = all_scores.each_ref().map(Matrix::softmax);
        let steps = pseudo_inverse(&a, iterations);
        let z = &steps[iterations];
        let means = b.product(&self.values);
        let mixed = z.product(&means);
        let context = f.product(&mixed);
        let weights = f.product(z).product(&b);

        // dO = F (Z (B V))
        let d_f = d_context.product(&mixed.transposed());
        let d_mixed = f.transposed().product(&d_context);
        let d_z = d_mixed.product(&means.transposed());
        let d_means = z.transposed().product(&d_mixed);
        let d_b = d_means.product(&self.values.transposed());
        let d_values = b.transposed().product(&d_means);
        let d_a = pseudo_inverse_backward(&a, &steps, d_z);
        // The products of Z have positive and negative terms that cancel.
        let terms = f.product(&z.map(f64::abs).product(&means.map(f64::abs)));
        let growth = terms.max_abs() / context.max_abs();
        let d_scores = [(f, d_f), (a.clone(), d_a), (b, d_b)];
        let d_terms = (d_scores.each_ref())
            .map(|(weights, d)| weights.softmax_backward_terms(d).times(scale.abs()));
        let [d_f, d_a, d_b] =
            d_scores.map(|(weights, d)| weights.softmax_backward(&d).times(scale));

        let d_query = d_f.product(&self.key_means);
        let mut d_query_means = d_a.product(&self.key_means);
        d_query_means.add(&d_b.product(&self.keys));
        let mut d_key_means = d_f.transposed().product(&query);
        d_key_means.add(&d_a.transposed().product(&self.query_means));
        let mut d_keys = d_b.transposed().product(&self.query_means);
        d_keys.add(&spread(&d_key_means, &self.key_segments, self.keys.rows));
        let d_means = spread(&d_query_means, &self.query_segments, self.problem.seq_q);

        let largest = all_scores.iter().map(Matrix::max_abs).fold(0.0, f64::max);
        solution.largest_score = (solution.largest_score.max(largest)).max(4.0 * growth);
        self.add_terms(&query, &d_terms, solution);

        let seq_k = self.problem.seq_k;
        for (row, (index, _)) in selected.iter().enumerate() {
            add_row(&mut solution.context, *index, 1.0, context.row(row));
            add_row(&mut solution.d_query, *index, 1.0, d_query.row(row));
            for (weight, j) in weights.row(row).iter().zip(&self.visible) {
                solution.weights[index * seq_k + j] = *weight;
            }
        }
        for row in 0..self.problem.seq_q {
            let index = self.first + row;
            add_row(&mut solution.d_query_as_key, index, 1.0, d_means.row(row));
        }
        for (row, j) in self.visible.iter().enumerate() {
            let index = self.first_key + j;
            add_row(&mut solution.d_key, index, 1.0, d_keys.row(row));
            add_row(&mut solution.d_value, index, 1.0, d_values.row(row));
        }
    }

    /// Largest terms of the gradients, whose scores have these absolute terms.
    fn add_terms(&self, query: &Matrix, [d_f, d_a, d_b]: &[Matrix; 3], solution: &mut Solution) {
        let [query, keys] = [query, &self.keys].map(|rows| rows.map(f64::abs));
        let [query_means, key_means] =
            [&self.query_means, &self.key_means].map(|rows| rows.map(f64::abs));
        let smallest = |segments: &[Vec<usize>]| {
            let sizes = segments.iter().map(Vec::len);
            sizes.min().unwrap_or(1) as f64
        };
        let mut of_query_means = d_a.product(&key_means);
        of_query_means.add(&d_b.product(&keys));
        let of_query_means = of_query_means.max_abs() / smallest(&self.query_segments);
        let mut of_key_means = d_f.transposed().product(&query);
        of_key_means.add(&d_a.transposed().product(&query_means));
        let of_key_means = of_key_means.max_abs() / smallest(&self.key_segments);
        let of_queries = d_f.product(&key_means).max_abs();
        let of_keys = d_b.transposed().product(&query_means).max_abs();
        let terms = &mut solution.terms;
        terms.d_query = terms.d_query.max(of_queries).max(of_query_means);
        terms.d_key = terms.d_key.max(of_keys).max(of_key_means);
    }
}

/// The rows of each segment: as many segments as landmarks, or rows if there are fewer. Sizes differ by
/// at most one, and the larger ones come first.
fn segments(seq: usize, landmarks: usize) -> Vec<Vec<usize>> {
    let count = landmarks.min(seq);
    let mut rows = 0..seq;
    (0..count)
        .map(|segment| {
            let size = seq / count + usize::from(segment < seq % count);
            rows.by_ref().take(size).collect()
        })
        .collect()
}

fn means(rows: &Matrix, segments: &[Vec<usize>]) -> Matrix {
    let mut means = Matrix::zeros(segments.len(), rows.columns);
    for (segment, members) in segments.iter().enumerate() {
        let factor = 1.0 / members.len() as f64;
        for member in members {
            add_row(&mut means.values, segment, factor, rows.row(*member));
        }
    }
    means
}

/// The gradient of the rows, given that of the means of their segments.
fn spread(d_means: &Matrix, segments: &[Vec<usize>], rows: usize) -> Matrix {
    let mut d_rows = Matrix::zeros(rows, d_means.columns);
    for (segment, members) in segments.iter().enumerate() {
        let factor = 1.0 / members.len() as f64;
        for member in members {
            add_row(&mut d_rows.values, *member, factor, d_means.row(segment));
        }
    }
    d_rows
}

/// The column with the largest sum, and the sum.
fn largest_column(a: &Matrix) -> (usize, f64) {
    let sum = |column: usize| a.values.iter().skip(column).step_by(a.columns).sum::<f64>();
    let sums = (0..a.columns).map(|column| (column, sum(column)));
    let larger = |x: (usize, f64), y: (usize, f64)| if y.1 > x.1 { y } else { x };
    sums.reduce(larger).unwrap_or((0, 1.0))
}

/// The initial matrix, and that after each iteration.
fn pseudo_inverse(a: &Matrix, iterations: usize) -> Vec<Matrix> {
    let (_, largest) = largest_column(a);
    let mut steps = vec![a.transposed().times(1.0 / largest)];
    for step in 0..iterations {
        let [_, _, _, t] = factors(a, &steps[step]);
        steps.push(steps[step].product(&t).times(0.25));
    }
    steps
}

/// The `X`, `Y`, `U` and `T` of an iteration.
fn factors(a: &Matrix, z: &Matrix) -> [Matrix; 4] {
    let x = a.product(z);
    let y = x.subtracted_from(7.0);
    let u = x.product(&y).subtracted_from(15.0);
    let t = x.product(&u).subtracted_from(13.0);
    [x, y, u, t]
}

/// The gradient of `A`, given that of the last step.
fn pseudo_inverse_backward(a: &Matrix, steps: &[Matrix], mut d_z: Matrix) -> Matrix {
    let mut d_a = Matrix::zeros(a.rows, a.columns);
    for z in steps[..steps.len() - 1].iter().rev() {
        let [x, y, u, t] = factors(a, z);
        let d_t = z.transposed().product(&d_z).times(0.25);
        let d_u = x.transposed().product(&d_t).times(-1.0);
        let d_y = x.transposed().product(&d_u).times(-1.0);
        let mut d_x = d_t.product(&u.transposed()).times(-1.0);
        d_x.add(&d_u.product(&y.transposed()).times(-1.0));
        d_x.add(&d_y.times(-1.0));
        d_z = d_z.product(&t.transposed()).times(0.25);
        d_z.add(&a.transposed().product(&d_x));
        d_a.add(&d_x.product(&z.transposed()));
    }
    let (column, largest) = largest_column(a);
    d_a.add(&d_z.transposed().times(1.0 / largest));
    // Of the divisor, a sum of a column.
    let terms = d_z.values.iter().zip(&steps[0].values).map(|(d, z)| d * z);
    let d_largest = -terms.sum::<f64>() / largest;
    let d_column = d_a.values.iter_mut().skip(column).step_by(a.columns);
    d_column.for_each(|d| *d += d_largest);
    d_a
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, solve};

    /// With a landmark for each position, the product of the three matrices is that of softmax
    /// attention, up to the error of the iteration.
    #[test]
    fn landmarks_of_all_positions_approximate_softmax_attention() {
        let softmax = Problem::new("landmarks", [1, 2, 6, 6, 8]).with_std(2.0);
        let inputs = softmax.inputs();
        let exact = solve(&softmax, &inputs);
        let error = |iterations: usize| {
            let formula = Formula::Nystrom {
                landmarks: 6,
                iterations,
            };
            let solution = solve(&softmax.clone().with_formula(formula), &inputs);
            let pairs = solution.context.iter().zip(&exact.context);
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        let errors = [0, 3, 30].map(error);
        assert!(errors[0] > 0.1 && errors[1] < errors[0], "{errors:?}");
        assert!(errors[2] < 1e-9, "{errors:?}");
    }

    #[test]
    fn segments_have_similar_sizes() {
        let sizes = |seq, landmarks| -> Vec<usize> {
            segments(seq, landmarks).iter().map(Vec::len).collect()
        };
        assert_eq!(sizes(8, 3), [3, 3, 2]);
        assert_eq!(sizes(6, 3), [2, 2, 2]);
        assert_eq!(sizes(2, 3), [1, 1]);
        assert_eq!(segments(5, 2), [vec![0, 1, 2], vec![3, 4]]);
    }
}
