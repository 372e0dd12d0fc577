//! Attention around predicted places, by its definition, in `f64`, with its gradients by
//! hand:
//!
//! ```text
//! u_i  = tanh(q_i·W)          z_i = v·u_i          p_i = S / (1 + exp(-z_i))
//! a_ij = softmax(s_ij)        over the keys j that query i sees with |j - p_i| <= window
//! g_ij = exp(-(j - p_i)² / 2σ²)                    σ = window / 2
//! o_i  = Σ_j f_ij a_ij g_ij v_j                    zero when i sees nothing
//!
//! da_ij = f_ij g_ij do_i · v_j
//! ds_ij = a_ij (da_ij - Σ_j a_ij da_ij)
//! dp_i  = Σ_j a_ij da_ij (j - p_i) / σ²
//! dz_i  = dp_i p_i (1 - p_i / S)
//! dv    = Σ_i dz_i u_i
//! dW    = Σ_i q_iᵀ dy_i       with dy_i = dz_i v (1 - u_i²)
//! dq_i  = W dy_i              besides what comes from the scores
//! ```
//!
//! with scores, their gradients and the `f` of dropout as those of softmax attention, and
//! `S` the number of keys of the example.

use crate::oracle::{Answer, Terms, add, add_row, dot, factor, largest, vector};
use crate::problem::{Inputs, Problem};
use crate::score::{Row, Score, bias_place};

/// Solves `problem` for some of its queries, with the vectors and matrices of all heads.
pub(crate) fn solve_by_places(
    problem: &Problem,
    [vectors, matrices]: [&[f32]; 2],
    window: usize,
    inputs: &Inputs,
    queries: &[usize],
) -> Answer {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let (scale, slopes) = (problem.scale(), problem.slopes());
    let square = (window as f64 / 2.0).powi(2);
    let mut answer = Answer::empty(problem, inputs, queries.len());
    let mut terms = Terms::default();
    let mut bias_squares = vec![0.0; inputs.bias.len()];

    for (at, &row_of_query) in queries.iter().enumerate() {
        let row = Row::of(problem, row_of_query);
        let query = vector(&inputs.query, row_of_query, d_head);
        let upstream = vector(&inputs.upstream, row_of_query, d_value);
        let key = |j: usize| vector(&inputs.key, row.first_key + j, d_head);
        let value = |j: usize| vector(&inputs.value, row.first_key + j, d_value);

        // Where this query looks.
        let v = vector(vectors, row.head, d_head);
        let matrix: Vec<Vec<f64>> = (0..d_head)
            .map(|x| vector(matrices, row.head * d_head + x, d_head))
            .collect();
        let mut product = vec![0.0; d_head];
        for (x, row) in query.iter().zip(&matrix) {
            add(&mut product, *x, row);
        }
        let u: Vec<f64> = product.iter().map(|x| x.tanh()).collect();
        let keys = problem.mask.keys_of(row.example, seq_k) as f64;
        let share = 1.0 / (1.0 + (-dot(&v, &u)).exp());
        let p = keys * share;
        let away = |j: usize| j as f64 - p;

        for &j in &row.seen {
            let to_the_edge = (away(j).abs() - window as f64).abs();
            answer.margin = answer.margin.min(to_the_edge);
        }
        let seen: Vec<usize> = (row.seen.iter().copied())
            .filter(|&j| away(j).abs() <= window as f64)
            .collect();
        let scores: Vec<Score> = (seen.iter())
            .map(|&j| {
                let product = scale * dot(&query, &key(j));
                Score::of(problem, inputs, &slopes, row.place(j), product)
            })
            .collect();
        let top = (scores.iter().map(|made| made.score)).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|made| (made.score - top).exp()).sum();
        // What is known of one key: its softmax, how much of it is left, and the gradient by
        // the softmax.
        let known: Vec<[f64; 3]> = (seen.iter().zip(&scores))
            .map(|(&j, made)| {
                let near = (-away(j).powi(2) / (2.0 * square)).exp();
                let d_soft = factor(problem, row.place(j)) * near * dot(&upstream, &value(j));
                [(made.score - top).exp() / sum, near, d_soft]
            })
            .collect();
        let mean: f64 = known.iter().map(|[soft, _, d_soft]| soft * d_soft).sum();

        let (mut d_place, mut d_place_terms) = (0.0, 0.0);
        for ((&j, made), [soft, near, d_soft]) in seen.iter().zip(&scores).zip(&known) {
            // A place of size p is rounded by p units, and the exponent of a key that is away
            // from it by so many times more.
            let of_place = p * away(j).abs() / square;
            let part = made.largest_part.max(of_place);
            answer.largest_score = answer.largest_score.max(part);

            answer.weights[at * seq_k + j] = soft * near;
            let kept = factor(problem, row.place(j)) * soft * near;
            let place = row.first_key + j;
            add_row(&mut answer.context, at, kept, &value(j));
            add_row(&mut answer.d_value, place, kept, &upstream);
            let d_score = soft * (d_soft - mean);
            if let Some(at) = bias_place(problem, row.place(j)) {
                answer.d_bias[at] += d_score;
                bias_squares[at] += (soft * d_soft).powi(2);
            }
            let d_product = scale * made.bend * d_score;
            add_row(&mut answer.d_key, place, d_product, &query);
            add_row(&mut answer.d_query, at, d_product, &key(j));
            d_place += soft * d_soft * away(j) / square;
            d_place_terms += (soft * d_soft * away(j) / square).abs();
            let term = (soft * d_soft).abs();
            terms.d_bias = terms.d_bias.max(term);
            let term = scale.abs() * term;
            terms.d_query = terms.d_query.max(term * largest(&inputs.key));
            terms.d_key = terms.d_key.max(term * largest(&inputs.query));
        }

        let slope = p * (1.0 - share);
        // Made of exponentials, the tanh of a small number is rounded like 1.
        terms.d_vector = terms.d_vector.max(d_place_terms * slope);
        add_row(&mut answer.d_vector, row.head, d_place * slope, &u);
        let bent: Vec<f64> = v.iter().zip(&u).map(|(v, u)| v * (1.0 - u * u)).collect();
        for (x, matrix_row) in matrix.iter().enumerate() {
            let into = (row.head * d_head + x) * d_head;
            add(
                &mut answer.d_matrix[into..][..d_head],
                query[x] * d_place * slope,
                &bent,
            );
            answer.d_query[at * d_head + x] += d_place * slope * dot(matrix_row, &bent);
            let sizes = (matrix_row.iter().zip(&bent)).map(|(w, b)| (w * b).abs());
            let term = d_place_terms * slope * sizes.sum::<f64>();
            terms.d_query = terms.d_query.max(term);
        }
    }
    let of_bias = bias_squares.into_iter().map(f64::sqrt);
    terms.d_bias = of_bias.fold(terms.d_bias, f64::max);
    answer.terms = terms;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Formula, Mask, solve};

    /// A network that says nothing predicts the middle; all keys are alike.
    #[test]
    fn weights_fall_around_the_middle() {
        let problem = Problem::new("predicted", [2, 2, 5, 8, 3])
            .with_formula(Formula::Predicted {
                vectors: vec![0.0; 6],
                matrices: vec![0.0; 18],
                window: 3,
            })
            .with_mask(Mask::KeyLengths(vec![8, 5]))
            .with_kv_heads(1);
        let inputs = Inputs {
            key: vec![0.0; 48],
            ..problem.inputs()
        };
        let answer = solve(&problem, &inputs);
        let fall = |away: f64| (-away * away / 4.5).exp();
        // 8 keys: the middle is at 4, and the window from 1 to 7.
        let want = [3.0, 2.0, 1.0, 0.0, 1.0, 2.0, 3.0].map(|away| fall(away) / 7.0);
        assert_eq!(answer.weights[0], 0.0);
        for (got, want) in answer.weights[1..8].iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
        // 5 keys: the middle is at 2.5, and none of the 5 is outside of the window.
        let second = &answer.weights[10 * 8..][..8];
        let want = [2.5, 1.5, 0.5, 0.5, 1.5].map(|away| fall(away) / 5.0);
        for (got, want) in second.iter().zip(want.into_iter().chain([0.0; 3])) {
            assert!((got - want).abs() < 1e-12, "{got} and {want}");
        }
    }
}
