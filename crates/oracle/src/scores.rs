//! Score-based attention by definition, in `f64`, with analytic gradients:
//!
//! ```text
//! t_ij = scale · q_i · k_j                            or of q_i·W·k_j, or v·tanh(q_i + k_j)
//! s_ij = c·tanh(t_ij / c) - slope · |i - j| + b_ij    for the visible keys j of query i
//! a_ij = softmax(s_ij / τ)                            τ = 1, unless keys are sampled
//! p_ij = a_ij g_ij                                    g = 1, unless positions are predicted
//! o_i  = Σ_j f_ij p_ij v_j                            zero for fully masked queries
//!
//! dv_j  = Σ_i f_ij p_ij do_i
//! da_ij = f_ij g_ij do_i · v_j
//! ds_ij = a_ij (da_ij - Σ_j a_ij da_ij) / τ
//! db_ij = ds_ij
//! dt_ij = ds_ij (1 - tanh²(t_ij / c))
//! dq_i  = scale Σ_j dt_ij k_j
//! dk_j  = scale Σ_i dt_ij q_i
//! ```
//!
//! with `s = t + b` and `dt = ds` without softcap, and `f` the dropout factor: 0 or
//! `1/(1 - probability)`.
//!
//! With a sink, the softmax has one more score, whose weight multiplies no value. Forget gates and
//! relative positions are biases, whose gradients are sums of `ds`. Sigmoid attention has `a_ij =
//! sigmoid(s_ij)` and `ds_ij = a_ij (1 - a_ij) da_ij`.
//!
//! Hard attention has `p = 1` for the first `j` with the largest `s`, plus noise if it is sampled.
//! Without noise its scores have no gradient.

use crate::dropout::{is_dropped, noise};
use crate::formula::Formula;
use crate::local_predictive::Prediction;
use crate::problem::{Inputs, Problem};
use crate::solution::{Solution, add_row, dot, head_matrix, max_abs, vec_mat, vector};

/// Solves `problem` for some of its queries. `keys` replace those of `inputs`, and `restrict`
/// removes visible keys of a query.
pub(crate) fn solve_scores(
    problem: &Problem,
    inputs: &Inputs,
    queries: &[usize],
    keys: Option<&[f64]>,
    restrict: &dyn Fn(usize, &mut Vec<usize>),
) -> Solution {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let formula = &problem.formula;
    let scale = match formula {
        Formula::Additive(_) | Formula::Multiplicative(_) => problem.scale.unwrap_or(1.0),
        _ => problem.scale(),
    };
    let temperature = match formula {
        Formula::Sampled { temperature, .. } => *temperature,
        _ => 1.0,
    };
    let is_hard = matches!(formula, Formula::Argmax | Formula::Sampled { .. });
    let slopes = problem.slopes();
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    let mut d_score_terms = 0f64;
    let mut bias_squares = vec![0.0; inputs.bias.len()];
    let all = |tensor: &[f32]| tensor.iter().map(|&x| f64::from(x)).collect();
    let keys: Vec<f64> = keys.map_or_else(|| all(&inputs.key), <[f64]>::to_vec);
    let values: Vec<f64> = all(&inputs.value);

    for (i, &query_row) in queries.iter().enumerate() {
        let row = Row::new(problem, query_row);
        let raw_query = vector(&inputs.query, query_row, d_head);
        let query = match formula {
            Formula::Multiplicative(matrices) => {
                vec_mat(&raw_query, &head_matrix(matrices, row.head, d_head))
            }
            _ => raw_query.clone(),
        };
        let output_grad = vector(&inputs.output_grad, query_row, d_value);
        let key = |j: usize| &keys[(row.first_key + j) * d_head..][..d_head];
        let value = |j: usize| &values[(row.first_key + j) * d_value..][..d_value];
        let bias_index_of = |j: usize| bias_index(problem, row.index(j));

        let mut visible = row.visible.clone();
        restrict(query_row, &mut visible);
        let prediction = Prediction::new(problem, &row, &query);
        if let Some(prediction) = &prediction {
            solution.margin = solution.margin.min(prediction.retain_window(&mut visible));
        }
        // A bias of minus infinity masks a key.
        visible.retain(|&j| bias_index_of(j).is_none_or(|b| inputs.bias[b] > f32::NEG_INFINITY));

        let score = |&j: &usize| {
            let product = match formula {
                Formula::Additive(vectors) => {
                    let (v, key) = (vector(vectors, row.head, d_head), key(j));
                    let term = |x: usize| v[x] * (query[x] + key[x]).tanh();
                    scale * (0..d_head).map(term).sum::<f64>()
                }
                _ => scale * dot(&query, key(j)),
            };
            let mut score = Score::new(problem, inputs, &slopes, row.index(j), product);
            if let Formula::Sampled { seed, .. } = formula {
                score.add(noise(*seed, row.index(j)));
            }
            if let Formula::Sigmoid(n) = formula {
                score.add(-(*n as f64).ln());
            }
            if let Some(term) = parameter_term(problem, &row, j) {
                score.add(term.value);
                score.max_term = score.max_term.max(term.max_term);
            }
            score
        };
        let sink = match formula {
            Formula::Sink(sinks) => Some(f64::from(sinks[row.head])),
            _ => None,
        };
        let scores: Vec<Score> = visible.iter().map(score).collect();
        let max = (scores.iter().map(|score| score.value))
            .chain(sink)
            .fold(f64::NEG_INFINITY, f64::max);
        let exponential = |score: f64| ((score - max) / temperature).exp();
        let values = scores.iter().map(|score| score.value);
        let sum: f64 = values.clone().chain(sink).map(exponential).sum();
        let soft: Vec<f64> = match formula {
            Formula::Sigmoid(_) => values.map(|score| 1.0 / (1.0 + (-score).exp())).collect(),
            _ => values.map(|score| exponential(score) / sum).collect(),
        };
        if !visible.is_empty() {
            solution.log_sum_exp[i] = max / temperature + sum.ln();
        }
        let gaussian = |j: usize| prediction.as_ref().map_or(1.0, |p| p.gaussian(j));
        let dropout = |j: usize| dropout_factor(problem, row.index(j));

        let argmax = scores.iter().position(|score| score.value == max);
        for (x, &j) in visible.iter().enumerate() {
            let weight = if !is_hard {
                soft[x] * gaussian(j)
            } else if argmax == Some(x) {
                1.0
            } else {
                solution.margin = solution.margin.min(max - scores[x].value);
                continue;
            };
            solution.weights[i * seq_k + j] = weight;
            let weight = dropout(j) * weight;
            add_row(&mut solution.context, i, weight, value(j));
            let key_row = row.first_key + j;
            add_row(&mut solution.d_value, key_row, weight, &output_grad);
        }
        if *formula == Formula::Argmax {
            continue;
        }

        let d_soft: Vec<f64> = (visible.iter())
            .map(|&j| dropout(j) * gaussian(j) * dot(&output_grad, value(j)))
            .collect();
        let mean = dot(&soft, &d_soft);
        if let (Some(sink), false) = (sink, visible.is_empty()) {
            let weight = exponential(sink) / sum;
            solution.d_parameter[row.head] -= weight * mean;
            let terms: f64 = soft.iter().zip(&d_soft).map(|(a, d)| (a * d).abs()).sum();
            solution.terms.d_parameter += weight * terms;
            solution.largest_score = solution.largest_score.max(sink.abs());
        }
        for (x, &j) in visible.iter().enumerate() {
            let score = &scores[x];
            let rounding = prediction.as_ref().map_or(0.0, |p| p.rounding(j));
            let term = score.max_term.max(rounding) / temperature;
            solution.largest_score = solution.largest_score.max(term);

            let slope = soft[x] / temperature;
            let d_score = match formula {
                Formula::Sigmoid(_) => soft[x] * (1.0 - soft[x]) * d_soft[x],
                _ => slope * (d_soft[x] - mean),
            };
            if let Some(term) = parameter_term(problem, &row, j) {
                for index in term.indices {
                    solution.d_parameter[index] += d_score;
                }
                solution.terms.d_parameter += (slope * d_soft[x]).abs();
            }
            d_score_terms = d_score_terms.max((slope * d_soft[x]).abs());
            if let Some(b) = bias_index_of(j) {
                solution.d_bias[b] += d_score;
                bias_squares[b] += (slope * d_soft[x]).powi(2);
            }
            let d_product = scale * score.softcap_grad * d_score;
            // Derivatives of the product with respect to the query and the key.
            let slope: Vec<f64>;
            let (by_query, by_key) = match formula {
                Formula::Additive(vectors) => {
                    let (v, key) = (vector(vectors, row.head, d_head), key(j));
                    let tanh: Vec<f64> = (query.iter().zip(key))
                        .map(|(q, k)| (q + k).tanh())
                        .collect();
                    add_row(&mut solution.d_vector, row.head, d_product, &tanh);
                    slope = (v.iter().zip(&tanh))
                        .map(|(v, t)| v * (1.0 - t * t))
                        .collect();
                    (&slope[..], &slope[..])
                }
                _ => (key(j), &query[..]),
            };
            add_row(&mut solution.d_key, row.first_key + j, d_product, by_key);
            add_row(&mut solution.d_query, i, d_product, by_query);
        }
        if let Some(prediction) = prediction {
            let d_soft = visible.iter().zip(soft.iter().zip(&d_soft));
            let d_gaussian = d_soft.map(|(&j, (soft, d_soft))| (j, soft * d_soft));
            prediction.add_gradients(d_gaussian, &query, i, &mut solution);
        }
        if let Formula::Multiplicative(matrices) = formula {
            let d_query = &mut solution.d_query[i * d_head..][..d_head];
            for (x, raw) in raw_query.iter().enumerate() {
                add_row(&mut solution.d_matrix, row.head * d_head + x, *raw, d_query);
            }
            let matrix = head_matrix(matrices, row.head, d_head);
            let d_raw: Vec<f64> = matrix.iter().map(|row| dot(row, d_query)).collect();
            d_query.copy_from_slice(&d_raw);
        }
    }
    // The derivative of an additive score is at most its vector. Matrices are small and increase no
    // term.
    let [query, key] = match formula {
        Formula::Additive(vectors) => [vectors, vectors],
        _ => [&inputs.query, &inputs.key],
    };
    let terms = &mut solution.terms;
    let d_product_terms = d_score_terms * scale.abs();
    terms.d_query = terms.d_query.max(d_product_terms * max_abs(key));
    terms.d_key = d_product_terms * max_abs(query);
    terms.d_bias = (bias_squares.into_iter().map(f64::sqrt)).fold(d_score_terms, f64::max);
    solution
}

/// A term of a score that is a sum of elements of a parameter.
struct ParameterTerm {
    value: f64,
    /// Largest absolute value from which it may be computed.
    max_term: f64,
    /// The elements that are added.
    indices: std::ops::Range<usize>,
}

/// The term of the score of a key, if the formula has one.
fn parameter_term(problem: &Problem, row: &Row, j: usize) -> Option<ParameterTerm> {
    // Both counted from the end, where query and key are aligned.
    let relative = (problem.seq_q - row.i) as i64 - (problem.seq_k - j) as i64;
    match &problem.formula {
        Formula::Relative(table) => {
            let index = table.index(row.head, relative);
            let value = f64::from(table.values[index]);
            Some(ParameterTerm {
                value,
                max_term: value.abs(),
                indices: index..index + 1,
            })
        }
        Formula::Forgetting(log_decays) => {
            let first = (row.example * problem.heads + row.head) * problem.seq_k;
            let sum = |range: std::ops::Range<usize>| -> f64 {
                log_decays[range].iter().map(|&x| f64::from(x)).sum()
            };
            // The key is not after the query.
            let indices = first + j + 1..first + j + 1 + relative.unsigned_abs() as usize;
            Some(ParameterTerm {
                value: sum(indices.clone()),
                // It is a difference of the sums over all earlier positions.
                max_term: sum(first..indices.end).abs(),
                indices,
            })
        }
        _ => None,
    }
}

/// The factor by which dropout multiplies the weight of `[example, head, i, j]`.
fn dropout_factor(problem: &Problem, index: [usize; 4]) -> f64 {
    let is_dropped = |prob: f64, seed: u64| match &problem.dropout_mask {
        Some(mask) => mask[flat_index(problem.scores_shape(), index)],
        None => is_dropped(prob, seed, index),
    };
    match problem.dropout {
        None => 1.0,
        Some((prob, seed)) if is_dropped(prob, seed) => 0.0,
        // Rounded to f32 as backends have it.
        Some((prob, _)) => f64::from((1.0 / (1.0 - prob)) as f32),
    }
}

/// Position of a query, and its visible keys.
pub(crate) struct Row {
    pub(crate) example: usize,
    pub(crate) head: usize,
    /// Position in its sequence.
    pub(crate) i: usize,
    /// Row of the first key of its example and head.
    pub(crate) first_key: usize,
    pub(crate) visible: Vec<usize>,
}

impl Row {
    /// `row` is an index into `[batch, heads, seq_q]`.
    pub(crate) fn new(problem: &Problem, row: usize) -> Self {
        let example = row / (problem.heads * problem.seq_q);
        let head = row / problem.seq_q % problem.heads;
        let kv_head = head / (problem.heads / problem.kv_heads);
        let mask = problem.mask_row(row);
        Self {
            example,
            head,
            i: row % problem.seq_q,
            first_key: (example * problem.kv_heads + kv_head) * problem.seq_k,
            visible: (0..problem.seq_k).filter(|&j| !mask[j]).collect(),
        }
    }

    /// `[example, head, query, key]`
    pub(crate) fn index(&self, j: usize) -> [usize; 4] {
        [self.example, self.head, self.i, j]
    }
}

struct Score {
    value: f64,
    /// Derivative of the score with respect to the product.
    softcap_grad: f64,
    /// Largest absolute term of the score.
    max_term: f64,
}

impl Score {
    fn add(&mut self, term: f64) {
        self.value += term;
        self.max_term = self.max_term.max(term.abs());
    }

    /// The score of `[example, head, i, j]`, given its scaled product.
    fn new(
        problem: &Problem,
        inputs: &Inputs,
        slopes: &[f32],
        index: [usize; 4],
        product: f64,
    ) -> Self {
        let [_, head, i, j] = index;
        let (capped, softcap_grad) = match problem.softcap {
            Some(cap) => {
                let tanh = (product / cap).tanh();
                (cap * tanh, 1.0 - tanh * tanh)
            }
            None => (product, 1.0),
        };
        let alibi = if problem.alibi {
            // Both counted from the end, where query and key are aligned.
            let distance = (problem.seq_q - i).abs_diff(problem.seq_k - j);
            f64::from(slopes[head]) * distance as f64
        } else {
            0.0
        };
        let bias = bias_index(problem, index).map_or(0.0, |b| f64::from(inputs.bias[b]));
        Self {
            value: capped - alibi + bias,
            softcap_grad,
            max_term: product.abs().max(alibi.abs()).max(bias.abs()),
        }
    }
}

/// Flat index of the bias of `[example, head, i, j]`, if there is one.
fn bias_index(problem: &Problem, index: [usize; 4]) -> Option<usize> {
    problem.bias.map(|dims| flat_index(dims, index))
}

/// Flat index into a tensor whose dimensions of 1 are broadcast.
fn flat_index(dims: [usize; 4], index: [usize; 4]) -> usize {
    dims.into_iter().zip(index).fold(0, |offset, (size, i)| {
        offset * size + if size == 1 { 0 } else { i }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, Mask, solve};

    fn problem(formula: Formula) -> Problem {
        Problem::new("one of many", [1, 2, 6, 5, 3])
            .with_formula(formula)
            .with_mask(Mask::Causal)
    }

    #[test]
    fn argmax_attends_to_the_largest_score() {
        let problem = problem(Formula::Argmax);
        let inputs = problem.inputs();
        let solution = solve(&problem, &inputs);
        let soft = solve(&problem.clone().with_formula(Formula::Softmax), &inputs);
        for row in 0..problem.queries() {
            let row_of = |weights: &[f64]| weights[row * 5..][..5].to_vec();
            let (hard, soft) = (row_of(&solution.weights), row_of(&soft.weights));
            let largest = soft.iter().copied().fold(0.0, f64::max);
            for (hard, soft) in hard.into_iter().zip(soft) {
                assert_eq!(hard == 1.0, soft == largest && largest > 0.0);
            }
        }
        let mut gradients = solution.d_query.iter().chain(&solution.d_key);
        assert!(gradients.all(|&x| x == 0.0));
    }

    #[test]
    fn argmax_of_equal_scores_is_the_first() {
        let problem = Problem::new("equals", [1, 1, 1, 3, 1]);
        let problem = problem.with_formula(Formula::Argmax);
        let inputs = Inputs {
            key: vec![1.0, 2.0, 2.0],
            query: vec![1.0],
            ..problem.inputs()
        };
        assert_eq!(solve(&problem, &inputs).weights, [0.0, 1.0, 0.0]);
    }

    /// The gradient of the scores is that of a softmax with the noise as a bias.
    #[test]
    fn sampled_gradients_are_those_of_a_softmax() {
        let (temperature, seed) = (0.7, 11);
        let sampled = problem(Formula::Sampled { temperature, seed });
        let inputs = sampled.inputs();
        let solution = solve(&sampled, &inputs);
        let soft = sampled
            .clone()
            .with_formula(Formula::Softmax)
            .with_scale(sampled.scale() / temperature)
            .with_bias(sampled.scores_shape());
        let mut bias = Vec::new();
        for row in 0..sampled.queries() {
            let index = |j| [0, row / 6, row % 6, j];
            bias.extend((0..5).map(|j| (noise(seed, index(j)) / temperature) as f32));
        }
        let soft = solve(&soft, &Inputs { bias, ..inputs });
        for (name, got, want) in [
            ("d_query", &solution.d_query, &soft.d_query),
            ("d_key", &solution.d_key, &soft.d_key),
        ] {
            let scale = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            assert!(scale > 0.0, "{name} is zero");
            for (a, b) in got.iter().zip(want) {
                // The bias is rounded to f32.
                assert!((a - b).abs() <= 1e-6 * scale, "{name}: {a} and {b}");
            }
        }
        assert_ne!(solution.d_value, soft.d_value);
    }
}
