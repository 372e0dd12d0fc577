//! Attention by scores, by its definition, in `f64`, with its gradients by hand:
//!
//! ```text
//! t_ij = scale · q_i · k_j                            or of q_i·W·k_j, or v·tanh(q_i + k_j)
//! s_ij = c·tanh(t_ij / c) - slope · |i - j| + b_ij    for the keys j that query i sees
//! a_ij = softmax(s_ij / τ)                            τ = 1, unless keys are sampled
//! p_ij = a_ij g_ij                                    g = 1, unless places are predicted
//! o_i  = Σ_j f_ij p_ij v_j                            zero when i sees nothing
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
//! with `s = t + b` and `dt = ds` where nothing is capped, and `f` what dropout multiplies by: 0
//! or `1/(1 - probability)`.
//!
//! Attention to one key has `p = 1` for the first `j` with the largest `s`, to which noise is
//! added where it is sampled. Without noise its scores have no gradient.

use crate::dropped::{is_dropped, noise};
use crate::formula::Formula;
use crate::oracle::{Answer, add_row, dot, largest, matrix_of, times, vector};
use crate::predicted::Prediction;
use crate::problem::{Inputs, Problem};

/// Solves `problem` for some of its queries. They see `keys` in place of those given, if there are
/// any, and of what the mask shows to a query only what `narrow` leaves.
pub(crate) fn solve_by_scores(
    problem: &Problem,
    inputs: &Inputs,
    queries: &[usize],
    keys: Option<&[f64]>,
    narrow: &dyn Fn(usize, &mut Vec<usize>),
) -> Answer {
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
    let is_to_one = matches!(formula, Formula::Best | Formula::Sampled { .. });
    let slopes = problem.slopes();
    let mut answer = Answer::empty(problem, inputs, queries.len());
    let mut d_score_terms = 0f64;
    let mut bias_squares = vec![0.0; inputs.bias.len()];

    for (at, &row_of_query) in queries.iter().enumerate() {
        let row = Row::of(problem, row_of_query);
        let raw_query = vector(&inputs.query, row_of_query, d_head);
        let query = match formula {
            Formula::Multiplicative(matrices) => {
                times(&raw_query, &matrix_of(matrices, row.head, d_head))
            }
            _ => raw_query.clone(),
        };
        let upstream = vector(&inputs.upstream, row_of_query, d_value);
        let key = |j: usize| match keys {
            None => vector(&inputs.key, row.first_key + j, d_head),
            Some(keys) => keys[(row.first_key + j) * d_head..][..d_head].to_vec(),
        };
        let value = |j: usize| vector(&inputs.value, row.first_key + j, d_value);
        let place_in_bias = |j: usize| bias_place(problem, row.place(j));

        let mut seen = row.seen.clone();
        narrow(row_of_query, &mut seen);
        let predicted = Prediction::of(problem, &row, &query);
        if let Some(predicted) = &predicted {
            answer.margin = answer.margin.min(predicted.see(&mut seen));
        }
        // A bias of minus infinity hides a key as a mask does.
        seen.retain(|&j| place_in_bias(j).is_none_or(|at| inputs.bias[at] > f32::NEG_INFINITY));

        let score = |&j: &usize| {
            let product = match formula {
                Formula::Additive(vectors) => {
                    let (v, key) = (vector(vectors, row.head, d_head), key(j));
                    let bent = |x: usize| v[x] * (query[x] + key[x]).tanh();
                    scale * (0..d_head).map(bent).sum::<f64>()
                }
                _ => scale * dot(&query, &key(j)),
            };
            let mut made = Score::of(problem, inputs, &slopes, row.place(j), product);
            if let Formula::Sampled { seed, .. } = formula {
                let noise = noise(*seed, row.place(j));
                made.score += noise;
                made.largest_part = made.largest_part.max(noise.abs());
            }
            made
        };
        let scores: Vec<Score> = seen.iter().map(score).collect();
        let top = (scores.iter().map(|made| made.score)).fold(f64::NEG_INFINITY, f64::max);
        let exponential = |made: &Score| ((made.score - top) / temperature).exp();
        let sum: f64 = scores.iter().map(exponential).sum();
        let soft: Vec<f64> = scores.iter().map(|made| exponential(made) / sum).collect();
        if !seen.is_empty() {
            answer.log_sum_exp[at] = top / temperature + sum.ln();
        }
        let near = |j: usize| {
            predicted
                .as_ref()
                .map_or(1.0, |predicted| predicted.near(j))
        };
        let factor = |j: usize| factor(problem, row.place(j));

        let best = scores.iter().position(|made| made.score == top);
        for (x, &j) in seen.iter().enumerate() {
            let weight = match is_to_one {
                true if best == Some(x) => 1.0,
                true => {
                    answer.margin = answer.margin.min(top - scores[x].score);
                    continue;
                }
                false => soft[x] * near(j),
            };
            answer.weights[at * seq_k + j] = weight;
            let kept = factor(j) * weight;
            add_row(&mut answer.context, at, kept, &value(j));
            add_row(&mut answer.d_value, row.first_key + j, kept, &upstream);
        }
        if *formula == Formula::Best {
            continue;
        }

        let d_soft: Vec<f64> = (seen.iter())
            .map(|&j| factor(j) * near(j) * dot(&upstream, &value(j)))
            .collect();
        let mean = dot(&soft, &d_soft);
        for (x, &j) in seen.iter().enumerate() {
            let made = &scores[x];
            let of_place = predicted
                .as_ref()
                .map_or(0.0, |predicted| predicted.part(j));
            let part = made.largest_part.max(of_place) / temperature;
            answer.largest_score = answer.largest_score.max(part);

            let slope = soft[x] / temperature;
            let d_score = slope * (d_soft[x] - mean);
            d_score_terms = d_score_terms.max((slope * d_soft[x]).abs());
            if let Some(at) = place_in_bias(j) {
                answer.d_bias[at] += d_score;
                bias_squares[at] += (slope * d_soft[x]).powi(2);
            }
            let d_product = scale * made.bend * d_score;
            // What the product is times in the gradient by the query, and by the key.
            let (by_query, by_key) = match formula {
                Formula::Additive(vectors) => {
                    let (v, key) = (vector(vectors, row.head, d_head), key(j));
                    let bent: Vec<f64> = (query.iter().zip(&key))
                        .map(|(q, k)| (q + k).tanh())
                        .collect();
                    add_row(&mut answer.d_vector, row.head, d_product, &bent);
                    let slope: Vec<f64> = (v.iter().zip(&bent))
                        .map(|(v, t)| v * (1.0 - t * t))
                        .collect();
                    (slope.clone(), slope)
                }
                _ => (key(j), query.clone()),
            };
            add_row(&mut answer.d_key, row.first_key + j, d_product, &by_key);
            add_row(&mut answer.d_query, at, d_product, &by_query);
        }
        if let Some(predicted) = predicted {
            let d_soft = seen.iter().zip(soft.iter().zip(&d_soft));
            let d_near = d_soft.map(|(&j, (soft, d_soft))| (j, soft * d_soft));
            predicted.add_gradients(d_near, &query, at, &mut answer);
        }
        if let Formula::Multiplicative(matrices) = formula {
            let d_query = &mut answer.d_query[at * d_head..][..d_head];
            for (x, raw) in raw_query.iter().enumerate() {
                add_row(&mut answer.d_matrix, row.head * d_head + x, *raw, d_query);
            }
            let matrix = matrix_of(matrices, row.head, d_head);
            let d_raw: Vec<f64> = matrix.iter().map(|row| dot(row, d_query)).collect();
            d_query.copy_from_slice(&d_raw);
        }
    }
    // The slope of the network is at most its vector. A matrix of small numbers makes nothing
    // larger.
    let [query, key] = match formula {
        Formula::Additive(vectors) => [vectors, vectors],
        _ => [&inputs.query, &inputs.key],
    };
    let terms = &mut answer.terms;
    terms.d_query = terms
        .d_query
        .max(d_score_terms * scale.abs() * largest(key));
    terms.d_key = d_score_terms * scale.abs() * largest(query);
    terms.d_bias = (bias_squares.into_iter().map(f64::sqrt)).fold(d_score_terms, f64::max);
    answer
}

/// What dropout multiplies the weight of `[example, head, i, j]` by.
fn factor(problem: &Problem, place: [usize; 4]) -> f64 {
    let is_dropped = |share: f64, seed: u64| match &problem.dropped {
        Some(dropped) => dropped[problem.place(place)],
        None => is_dropped(share, seed, place),
    };
    match problem.dropout {
        None => 1.0,
        Some((share, seed)) if is_dropped(share, seed) => 0.0,
        // As a backend has it: the rounding of the factor is not its error.
        Some((share, _)) => f64::from((1.0 / (1.0 - share)) as f32),
    }
}

/// Where the query of a row lies, and the keys and values it is given.
pub(crate) struct Row {
    pub(crate) example: usize,
    pub(crate) head: usize,
    /// Its number among the queries of its example and head.
    pub(crate) i: usize,
    /// Where the keys of its example and head begin.
    pub(crate) first_key: usize,
    /// The keys it sees.
    pub(crate) seen: Vec<usize>,
}

impl Row {
    /// Of query `row`, counted over `[batch, heads, seq_q]`.
    pub(crate) fn of(problem: &Problem, row: usize) -> Self {
        let example = row / (problem.heads * problem.seq_q);
        let head = row / problem.seq_q % problem.heads;
        let kv_head = head / (problem.heads / problem.kv_heads);
        let hidden = problem.hidden_from(row);
        Self {
            example,
            head,
            i: row % problem.seq_q,
            first_key: (example * problem.kv_heads + kv_head) * problem.seq_k,
            seen: (0..problem.seq_k).filter(|&j| !hidden[j]).collect(),
        }
    }

    /// `[example, head, query, key]`
    fn place(&self, j: usize) -> [usize; 4] {
        [self.example, self.head, self.i, j]
    }
}

/// A score, made of a product.
struct Score {
    score: f64,
    /// What a gradient is multiplied by on its way from the score to the product.
    bend: f64,
    /// The largest number by size that it is the sum of.
    largest_part: f64,
}

impl Score {
    /// Of the product of `[example, head, i, j]`.
    fn of(
        problem: &Problem,
        inputs: &Inputs,
        slopes: &[f32],
        place: [usize; 4],
        product: f64,
    ) -> Self {
        let [_, head, i, j] = place;
        let (capped, bend) = match problem.softcap {
            Some(cap) => {
                let bent = (product / cap).tanh();
                (cap * bent, 1.0 - bent * bent)
            }
            None => (product, 1.0),
        };
        let fall = if problem.alibi {
            // Both counted from the end, where query and key are level.
            let distance = (problem.seq_q - i).abs_diff(problem.seq_k - j);
            f64::from(slopes[head]) * distance as f64
        } else {
            0.0
        };
        let bias = bias_place(problem, place).map_or(0.0, |at| f64::from(inputs.bias[at]));
        Self {
            score: capped - fall + bias,
            bend,
            largest_part: product.abs().max(fall.abs()).max(bias.abs()),
        }
    }
}

/// Where the bias of `[example, head, i, j]` lies, if there is one.
fn bias_place(problem: &Problem, place: [usize; 4]) -> Option<usize> {
    let dims = problem.bias?;
    Some(dims.iter().zip(place).fold(0, |offset, (&size, at)| {
        offset * size + if size == 1 { 0 } else { at }
    }))
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
    fn the_best_key_alone_is_looked_at() {
        let problem = problem(Formula::Best);
        let inputs = problem.inputs();
        let answer = solve(&problem, &inputs);
        let soft = solve(&problem.clone().with_formula(Formula::Softmax), &inputs);
        for row in 0..problem.queries() {
            let of = |weights: &[f64]| weights[row * 5..][..5].to_vec();
            let (one, soft) = (of(&answer.weights), of(&soft.weights));
            let largest = soft.iter().copied().fold(0.0, f64::max);
            for (one, soft) in one.into_iter().zip(soft) {
                assert_eq!(one == 1.0, soft == largest && largest > 0.0);
            }
        }
        assert!(
            answer
                .d_query
                .iter()
                .chain(&answer.d_key)
                .all(|&x| x == 0.0)
        );
    }

    #[test]
    fn the_first_of_equals_is_taken() {
        let problem = Problem::new("equals", [1, 1, 1, 3, 1]);
        let problem = problem.with_formula(Formula::Best);
        let inputs = Inputs {
            key: vec![1.0, 2.0, 2.0],
            query: vec![1.0],
            ..problem.inputs()
        };
        assert_eq!(solve(&problem, &inputs).weights, [0.0, 1.0, 0.0]);
    }

    /// The gradient by scores is that of a softmax with the noise for a bias.
    #[test]
    fn gradients_are_those_of_a_softmax() {
        let (temperature, seed) = (0.7, 11);
        let sampled = problem(Formula::Sampled { temperature, seed });
        let inputs = sampled.inputs();
        let answer = solve(&sampled, &inputs);
        let soft = sampled
            .clone()
            .with_formula(Formula::Softmax)
            .with_scale(sampled.scale() / temperature)
            .with_bias(sampled.scores_shape());
        let mut bias = Vec::new();
        for row in 0..sampled.queries() {
            let place = |j| [0, row / 6, row % 6, j];
            bias.extend((0..5).map(|j| (noise(seed, place(j)) / temperature) as f32));
        }
        let soft = solve(&soft, &Inputs { bias, ..inputs });
        for (name, got, want) in [
            ("d_query", &answer.d_query, &soft.d_query),
            ("d_key", &answer.d_key, &soft.d_key),
        ] {
            let size = want.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            assert!(size > 0.0, "{name} is nothing");
            for (a, b) in got.iter().zip(want) {
                // The bias is rounded to f32.
                assert!((a - b).abs() <= 1e-6 * size, "{name}: {a} and {b}");
            }
        }
        assert_ne!(answer.d_value, soft.d_value);
    }
}
