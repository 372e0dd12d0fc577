//! Attention whose weights are products, by its definition, in `f64`, with its gradients
//! by hand:
//!
//! ```text
//! s_ij = γ^(i - j) φ(q_i)·φ(k_j)          for the keys j that query i sees
//! t_i  = Σ_j s_ij                         or 1 where nothing is divided
//! o_i  = Σ_j s_ij v_j / t_i               zero when i sees nothing
//!
//! dv_j  = Σ_i s_ij / t_i do_i
//! ds_ij = (do_i · v_j - do_i · o_i) / t_i       the second term only where divided
//! dφ(q_i) = Σ_j γ^(i - j) ds_ij φ(k_j)
//! dφ(k_j) = Σ_i γ^(i - j) ds_ij φ(q_i)
//! ```

use crate::formula::Features;
use crate::oracle::{Answer, add, add_row, dot, vector};
use crate::problem::{Inputs, Problem};
use crate::scores::Row;

/// Solves `problem` for some of its queries by `features`, or, where there are none, by
/// the products themselves, forgotten by `decays`.
pub(crate) fn solve_by_products(
    problem: &Problem,
    features: Option<&Features>,
    decays: &[f64],
    inputs: &Inputs,
    queries: &[usize],
) -> Answer {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let mut answer = Answer::empty(problem, inputs, queries.len());
    let [query_scale, key_scale] = match features {
        Some(features) => features.scales(problem.scale, d_head),
        None => [problem.scale(), 1.0],
    };
    let of = |x: &[f64]| features.map_or_else(|| x.to_vec(), |features| features.of(x));
    let back = |x: &[f64], d: &[f64]| match features {
        Some(features) => features.gradient(x, d),
        None => d.to_vec(),
    };
    let largest_exponent = |x: &[f64]| features.map_or(0.0, |f| f.largest_exponent(x));
    let scaled = |tensor: &[f32], row: usize, scale: f64| -> Vec<f64> {
        let x = vector(tensor, row, d_head);
        x.into_iter().map(|x| scale * x).collect()
    };
    // Each key is turned into features once, and the gradient by them back once.
    let mut keys: Vec<Key> = (0..inputs.key.len() / d_head)
        .map(|row| {
            let key = scaled(&inputs.key, row, key_scale);
            let of_key = of(&key);
            Key {
                d: vec![0.0; of_key.len()],
                terms: vec![0.0; of_key.len()],
                features: of_key,
                key,
            }
        })
        .collect();

    for (at, &row) in queries.iter().enumerate() {
        let Row {
            head,
            i,
            first_key,
            seen,
            ..
        } = Row::of(problem, row);
        let kv_head = head / (problem.heads / problem.kv_heads);
        let query = scaled(&inputs.query, row, query_scale);
        answer.largest_score = answer.largest_score.max(largest_exponent(&query));
        let of_query = of(&query);
        let upstream = vector(&inputs.upstream, row, d_value);
        // Place, what is left of it at that distance, product.
        let seen: Vec<(usize, f64, f64)> = seen
            .into_iter()
            .map(|j| {
                // Both counted from the end, where query and key are level.
                let distance = (problem.seq_q - i).abs_diff(seq_k - j) as i32;
                let fade = decays
                    .get(kv_head)
                    .map_or(1.0, |decay| decay.powi(distance));
                let product = fade * dot(&of_query, &keys[first_key + j].features);
                (j, fade, product)
            })
            .collect();
        let total: f64 = match features {
            Some(_) => seen.iter().map(|(.., product)| product).sum(),
            None => 1.0,
        };
        if total == 0.0 {
            continue;
        }
        let context = &mut answer.context[at * d_value..][..d_value];
        for (j, _, product) in &seen {
            answer.weights[at * seq_k + j] = product / total;
            let value = vector(&inputs.value, first_key + j, d_value);
            add(context, product / total, &value);
        }
        let mean = match features {
            Some(_) => dot(&upstream, context),
            None => 0.0,
        };

        let mut d_of_query = vec![0.0; of_query.len()];
        let mut terms_of_query = vec![0.0; of_query.len()];
        for (j, fade, product) in seen {
            let place = first_key + j;
            let d_weight = dot(&upstream, &vector(&inputs.value, place, d_value));
            add_row(&mut answer.d_value, place, product / total, &upstream);
            let key = &mut keys[place];
            let d_product = fade * (d_weight - mean) / total;
            add(&mut d_of_query, d_product, &key.features);
            add(&mut key.d, d_product, &of_query);
            // The same without the difference: what is rounded on the way.
            let terms = fade * (d_weight.abs() + mean.abs()) / total;
            add(&mut terms_of_query, terms, &key.features);
            add(&mut key.terms, terms, &of_query);
        }
        let d_query = back(&query, &d_of_query);
        add_row(&mut answer.d_query, at, query_scale, &d_query);
        let terms = query_scale.abs() * largest(&back(&query, &terms_of_query));
        answer.terms.d_query = answer.terms.d_query.max(terms);
    }
    for (place, key) in keys.iter().enumerate() {
        let d_key = back(&key.key, &key.d);
        add_row(&mut answer.d_key, place, key_scale, &d_key);
        let terms = key_scale.abs() * largest(&back(&key.key, &key.terms));
        answer.terms.d_key = answer.terms.d_key.max(terms);
        answer.largest_score = answer.largest_score.max(largest_exponent(&key.key));
    }
    answer
}

/// A key, its features, and what gathers for them.
struct Key {
    key: Vec<f64>,
    features: Vec<f64>,
    d: Vec<f64>,
    terms: Vec<f64>,
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().fold(0.0, |size: f64, x| size.max(x.abs()))
}
