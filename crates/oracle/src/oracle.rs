//! Softmax attention by its definition, in `f64`, with its gradients by hand:
//!
//! ```text
//! t_ij = scale · q_i · k_j
//! s_ij = c·tanh(t_ij / c) - slope · |i - j| + b_ij    for the keys j that query i sees
//! p_ij = exp(s_ij) / Σ_j exp(s_ij)
//! o_i  = Σ_j f_ij p_ij v_j                            zero when i sees nothing
//!
//! dv_j  = Σ_i f_ij p_ij do_i
//! ds_ij = p_ij (f_ij do_i · v_j - do_i · o_i)
//! db_ij = ds_ij
//! dt_ij = ds_ij (1 - tanh²(t_ij / c))
//! dq_i  = scale Σ_j dt_ij k_j
//! dk_j  = scale Σ_i dt_ij q_i
//! ```
//!
//! with `s = t + b` and `dt = ds` where nothing is capped, and `f` what dropout
//! multiplies by: 0 or `1/(1 - probability)`.

use crate::dropped::is_dropped;
use crate::formula::Formula;
use crate::hashed::solve_by_hashing;
use crate::one::solve_by_one;
use crate::predicted::solve_by_places;
use crate::problem::{Inputs, Problem};
use crate::products::solve_by_products;
use crate::score::{Row, Score, bias_place};

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

impl Terms {
    /// Of gradients by scores, by a bias as the squares of what each number is the sum of, and
    /// by `[query, key]`, which are the scores' times the other.
    pub(crate) fn of(
        d_score: f64,
        bias_squares: Vec<f64>,
        scale: f64,
        [query, key]: [&[f32]; 2],
    ) -> Self {
        let of_bias = bias_squares.into_iter().map(f64::sqrt);
        Self {
            d_query: d_score * scale.abs() * largest(key),
            d_key: d_score * scale.abs() * largest(query),
            d_bias: of_bias.fold(d_score, f64::max),
            ..Self::default()
        }
    }
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
        Formula::Softmax | Formula::Additive(_) | Formula::Multiplicative(_) => {
            solve_by_softmax(problem, inputs, queries, &|row| Keys::of(problem, row))
        }
        Formula::Hashed(hashing) => solve_by_hashing(problem, hashing, inputs, queries),
        Formula::Features(features) => {
            solve_by_products(problem, Some(features), &[], inputs, queries)
        }
        Formula::Retention(decays) => solve_by_products(problem, None, decays, inputs, queries),
        Formula::Predicted {
            vectors,
            matrices,
            window,
        } => solve_by_places(problem, [vectors, matrices], *window, inputs, queries),
        Formula::Best => solve_by_one(problem, None, inputs, queries),
        Formula::Sampled { temperature, seed } => {
            solve_by_one(problem, Some((*temperature, *seed)), inputs, queries)
        }
    }
}

/// What a query looks at.
pub(crate) struct Keys<'a> {
    /// In place of the keys given.
    pub(crate) numbers: Option<&'a [f64]>,
    /// The places it sees, in order.
    pub(crate) seen: Vec<usize>,
}

impl Keys<'_> {
    /// As the problem says it.
    fn of(problem: &Problem, row: usize) -> Self {
        let hidden = problem.hidden_from(row);
        Self {
            numbers: None,
            seen: (0..problem.seq_k).filter(|&j| !hidden[j]).collect(),
        }
    }
}

pub(crate) fn solve_by_softmax<'a>(
    problem: &Problem,
    inputs: &Inputs,
    queries: &[usize],
    keys_of: &dyn Fn(usize) -> Keys<'a>,
) -> Answer {
    let (d_head, d_value) = (problem.d_head, problem.d_value);
    let seq_k = problem.seq_k;
    let network = match &problem.formula {
        Formula::Additive(vectors) => Some(vectors),
        _ => None,
    };
    let matrices = match &problem.formula {
        Formula::Multiplicative(matrices) => Some(matrices),
        _ => None,
    };
    let scale = match problem.formula {
        Formula::Softmax | Formula::Hashed(_) => problem.scale(),
        _ => problem.scale.unwrap_or(1.0),
    };

    let mut answer = Answer::empty(problem, inputs, queries.len());
    let mut d_score_terms = 0f64;
    let mut bias_squares = vec![0.0; inputs.bias.len()];
    let slopes = problem.slopes();

    for (at, &row) in queries.iter().enumerate() {
        let Row {
            example,
            head,
            i,
            first_key,
            ..
        } = Row::of(problem, row);
        let raw_query = vector(&inputs.query, row, d_head);
        // The rows of this head's matrix.
        let matrix = matrices.map(|matrices| {
            let rows = (0..d_head).map(|x| vector(matrices, head * d_head + x, d_head));
            rows.collect::<Vec<_>>()
        });
        let query = match &matrix {
            None => raw_query.clone(),
            Some(matrix) => {
                let mut product = vec![0.0; d_head];
                for (x, row) in raw_query.iter().zip(matrix) {
                    add(&mut product, *x, row);
                }
                product
            }
        };
        let upstream = vector(&inputs.upstream, row, d_value);
        let Keys { numbers, mut seen } = keys_of(row);
        let key_at = |place: usize| match numbers {
            None => vector(&inputs.key, place, d_head),
            Some(keys) => keys[place * d_head..][..d_head].to_vec(),
        };
        let place_in_bias = |j: usize| bias_place(problem, [example, head, i, j]);
        // A bias of minus infinity hides a key as a mask does.
        seen.retain(|&j| place_in_bias(j).is_none_or(|at| inputs.bias[at] > f32::NEG_INFINITY));
        let mut scores = Vec::new();
        // What a gradient is multiplied by on its way from a score to its product.
        let mut bends = Vec::new();
        for &j in &seen {
            let key = key_at(first_key + j);
            let product = match network {
                None => scale * dot(&query, &key),
                Some(vectors) => {
                    let v = vector(vectors, head, d_head);
                    let bent = |x: usize| v[x] * (query[x] + key[x]).tanh();
                    scale * (0..d_head).map(bent).sum::<f64>()
                }
            };
            let made = Score::of(problem, inputs, &slopes, [example, head, i, j], product);
            answer.largest_score = answer.largest_score.max(made.largest_part);
            scores.push(made.score);
            bends.push(made.bend);
        }
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|s| (s - largest).exp()).sum();
        if !seen.is_empty() {
            answer.log_sum_exp[at] = largest + sum.ln();
        }

        let factor = |j: usize| factor(problem, [example, head, i, j]);
        let context = &mut answer.context[at * d_value..][..d_value];
        for (&j, score) in seen.iter().zip(&scores) {
            let weight = (score - largest).exp() / sum;
            answer.weights[at * seq_k + j] = weight;
            add(
                context,
                factor(j) * weight,
                &vector(&inputs.value, first_key + j, d_value),
            );
        }
        let mean = dot(&upstream, context);

        for (j, bend) in seen.into_iter().zip(bends) {
            let (weight, place) = (answer.weights[at * seq_k + j], first_key + j);
            let value = vector(&inputs.value, place, d_value);
            let key = key_at(place);
            let d_weight = factor(j) * dot(&upstream, &value);
            let d_score = weight * (d_weight - mean);
            d_score_terms = d_score_terms.max((weight * d_weight).abs());
            if let Some(at) = place_in_bias(j) {
                answer.d_bias[at] += d_score;
                bias_squares[at] += (weight * d_weight).powi(2);
            }
            let d_product = bend * d_score;
            add_row(&mut answer.d_value, place, factor(j) * weight, &upstream);
            // What the product is times in the gradient by the query, and by the key.
            let (by_query, by_key) = match network {
                None => (key, query.clone()),
                Some(vectors) => {
                    let v = vector(vectors, head, d_head);
                    let bent: Vec<f64> = (query.iter().zip(&key))
                        .map(|(q, k)| (q + k).tanh())
                        .collect();
                    add_row(&mut answer.d_vector, head, scale * d_product, &bent);
                    let slope: Vec<f64> = (v.iter().zip(&bent))
                        .map(|(v, t)| v * (1.0 - t * t))
                        .collect();
                    (slope.clone(), slope)
                }
            };
            add_row(&mut answer.d_key, place, scale * d_product, &by_key);
            add_row(&mut answer.d_query, at, scale * d_product, &by_query);
        }
        if let Some(matrix) = &matrix {
            let d_query = &mut answer.d_query[at * d_head..][..d_head];
            for (x, raw) in raw_query.iter().enumerate() {
                let row = (head * d_head + x) * d_head;
                add(&mut answer.d_matrix[row..][..d_head], *raw, d_query);
            }
            let d_raw: Vec<f64> = matrix.iter().map(|row| dot(row, d_query)).collect();
            d_query.copy_from_slice(&d_raw);
        }
    }
    // The slope of the network is at most its vector. A matrix of small numbers makes nothing
    // larger.
    let [query, key] =
        [&inputs.query, &inputs.key].map(|numbers| network.map_or(numbers, |vectors| vectors));
    answer.terms = Terms::of(d_score_terms, bias_squares, scale, [query, key]);
    answer
}

/// What dropout multiplies the weight of `[example, head, i, j]` by.
pub(crate) fn factor(problem: &Problem, place: [usize; 4]) -> f64 {
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

pub(crate) fn vector(tensor: &[f32], row: usize, width: usize) -> Vec<f64> {
    tensor[row * width..][..width]
        .iter()
        .map(|&x| f64::from(x))
        .collect()
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
