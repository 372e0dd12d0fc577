//! Attention to one key, by its definition, in `f64`, with its gradients by hand:
//!
//! ```text
//! t_ij = s_ij + g_ij                      the score, and noise where it is sampled
//! b    = the first j with the largest t_ij, of the keys that query i sees
//! o_i  = f_ib v_b                         zero when i sees nothing
//!
//! dv_b  = Σ_i f_ib do_i
//! p_ij  = softmax(t_ij / temperature)
//! ds_ij = p_ij (f_ij do_i · v_j - Σ_j p_ij f_ij do_i · v_j) / temperature
//! ```
//!
//! with scores, their gradients and the `f` of dropout as those of softmax attention.
//! Without noise the scores have no gradient.

use crate::dropped::noise;
use crate::oracle::{Answer, Terms, add_row, dot, factor, vector};
use crate::problem::{Inputs, Problem};
use crate::score::{Row, Score, bias_place};

/// Solves `problem` for some of its queries, each attending to the best key, or to the best
/// after noise of a temperature and a seed.
pub(crate) fn solve_by_one(
    problem: &Problem,
    sampled: Option<(f64, u64)>,
    inputs: &Inputs,
    queries: &[usize],
) -> Answer {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let (scale, slopes) = (problem.scale(), problem.slopes());
    let mut answer = Answer::empty(problem, inputs, queries.len());
    let mut d_score_terms = 0f64;
    let mut bias_squares = vec![0.0; inputs.bias.len()];

    for (at, &row_of_query) in queries.iter().enumerate() {
        let row = Row::of(problem, row_of_query);
        let query = vector(&inputs.query, row_of_query, d_head);
        let upstream = vector(&inputs.upstream, row_of_query, d_value);
        let key = |j: usize| vector(&inputs.key, row.first_key + j, d_head);
        let value = |j: usize| vector(&inputs.value, row.first_key + j, d_value);

        let mut scores: Vec<Score> = Vec::new();
        let mut best: Option<(usize, f64)> = None;
        for &j in &row.seen {
            let product = scale * dot(&query, &key(j));
            let mut made = Score::of(problem, inputs, &slopes, row.place(j), product);
            if let Some((_, seed)) = sampled {
                let noise = noise(seed, row.place(j));
                made.score += noise;
                made.largest_part = made.largest_part.max(noise.abs());
            }
            if best.is_none_or(|(_, largest)| made.score > largest) {
                best = Some((j, made.score));
            }
            scores.push(made);
        }
        let Some((best, largest)) = best else {
            continue;
        };
        for (_, made) in (row.seen.iter().zip(&scores)).filter(|(j, _)| **j != best) {
            answer.margin = answer.margin.min(largest - made.score);
        }
        answer.weights[at * seq_k + best] = 1.0;
        let kept = factor(problem, row.place(best));
        add_row(&mut answer.context, at, kept, &value(best));
        let place = row.first_key + best;
        add_row(&mut answer.d_value, place, kept, &upstream);

        let Some((temperature, _)) = sampled else {
            continue;
        };
        let exponentials: Vec<f64> = scores
            .iter()
            .map(|made| ((made.score - largest) / temperature).exp())
            .collect();
        let sum: f64 = exponentials.iter().sum();
        let d_weights: Vec<f64> = (row.seen.iter())
            .map(|&j| factor(problem, row.place(j)) * dot(&upstream, &value(j)))
            .collect();
        let mean = dot(&exponentials, &d_weights) / sum;
        for (at_seen, &j) in row.seen.iter().enumerate() {
            let made = &scores[at_seen];
            let softened = exponentials[at_seen] / sum / temperature;
            let d_score = softened * (d_weights[at_seen] - mean);
            d_score_terms = d_score_terms.max((softened * d_weights[at_seen]).abs());
            answer.largest_score = answer.largest_score.max(made.largest_part / temperature);
            if let Some(at) = bias_place(problem, row.place(j)) {
                answer.d_bias[at] += d_score;
                bias_squares[at] += (softened * d_weights[at_seen]).powi(2);
            }
            let d_product = scale * made.bend * d_score;
            let place = row.first_key + j;
            add_row(&mut answer.d_key, place, d_product, &query);
            add_row(&mut answer.d_query, at, d_product, &key(j));
        }
    }
    let both = [&inputs.query[..], &inputs.key];
    answer.terms = Terms::of(d_score_terms, bias_squares, scale, both);
    answer
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
