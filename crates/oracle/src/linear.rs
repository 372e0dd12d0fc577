//! Linear attention and retention by definition, in `f64`, with analytic gradients:
//!
//! ```text
//! s_ij = γ^(i - j) w(φ(q_i)·φ(k_j))       for the visible keys j of query i, usually w(x) = x
//! t_i  = Σ_j s_ij                         1 for retention
//! o_i  = Σ_j s_ij v_j / t_i               zero for fully masked queries
//!
//! dv_j  = Σ_i s_ij / t_i do_i
//! ds_ij = (do_i · v_j - do_i · o_i) / t_i       the second term is zero for retention
//! dφ(q_i) = Σ_j γ^(i - j) w'_ij ds_ij φ(k_j)
//! dφ(k_j) = Σ_i γ^(i - j) w'_ij ds_ij φ(q_i)
//! ```
//!
//! For cosine features, the decay is `cos(π/2 · (i - j) / length)` instead.

use crate::formula::FeatureMap;
use crate::problem::{Inputs, Problem};
use crate::scores::Row;
use crate::solution::{Solution, add, add_row, dot, vector};

/// Solves `problem` for some of its queries with a feature map, or, without one, as retention with
/// `decays`.
pub(crate) fn solve_linear(
    problem: &Problem,
    feature_map: Option<&FeatureMap>,
    decays: &[f64],
    inputs: &Inputs,
    queries: &[usize],
) -> Solution {
    let (d_head, d_value, seq_k) = (problem.d_head, problem.d_value, problem.seq_k);
    let mut solution = Solution::zeros(problem, inputs, queries.len());
    let [query_scale, key_scale] = match feature_map {
        Some(feature_map) => feature_map.scales(problem.scale, d_head),
        None => [problem.scale(), 1.0],
    };
    let forward = |x: &[f64]| feature_map.map_or_else(|| x.to_vec(), |map| map.forward(x));
    let backward = |x: &[f64], d: &[f64]| match feature_map {
        Some(map) => map.backward(x, d),
        None => d.to_vec(),
    };
    let max_exponent = |x: &[f64]| feature_map.map_or(0.0, |map| map.max_exponent(x));
    let scaled = |tensor: &[f32], row: usize, scale: f64| -> Vec<f64> {
        let x = vector(tensor, row, d_head);
        x.into_iter().map(|x| scale * x).collect()
    };
    // The feature map is applied once per key, forward and backward.
    let mut keys: Vec<Key> = (0..inputs.key.len() / d_head)
        .map(|row| {
            let key = scaled(&inputs.key, row, key_scale);
            let features = forward(&key);
            Key {
                d: vec![0.0; features.len()],
                terms: vec![0.0; features.len()],
                features,
                key,
            }
        })
        .collect();

    for (query_row, &row) in queries.iter().enumerate() {
        let position = Row::new(problem, row);
        let first_key = position.first_key;
        let kv_head = position.head / (problem.heads / problem.kv_heads);
        let query = scaled(&inputs.query, row, query_scale);
        solution.largest_score = solution.largest_score.max(max_exponent(&query));
        let query_features = forward(&query);
        let output_grad = vector(&inputs.output_grad, row, d_value);
        // Largest value of the weights if all terms of their dot products were positive.
        let mut largest_sum = 0.0;
        // Key, derivative and value of the weight before normalisation.
        let weights: Vec<(usize, f64, f64)> = (position.visible.into_iter())
            .map(|j| {
                // Both counted from the end, where query and key are aligned.
                let distance = (problem.seq_q - position.i).abs_diff(seq_k - j);
                let key_features = &keys[first_key + j].features;
                let product = dot(&query_features, key_features);
                let Some(map) = feature_map else {
                    let decay = decays[kv_head].powi(distance as i32);
                    return (j, decay, decay * product);
                };
                let factor = map.distance_factor(distance);
                let [weight, slope] = map.weight(product);
                let terms = query_features.iter().zip(key_features);
                let terms = terms.map(|(q, k)| (q * k).abs()).sum();
                largest_sum += factor * map.weight(terms)[0];
                (j, factor * slope, factor * weight)
            })
            .collect();
        let total: f64 = match feature_map {
            Some(_) => weights.iter().map(|(.., weight)| weight).sum(),
            None => 1.0,
        };
        if total == 0.0 {
            continue;
        }
        if let Some(FeatureMap::Taylor) = feature_map {
            // The rounding errors of a sum of features are those of its terms.
            solution.largest_score = solution.largest_score.max(4.0 * largest_sum / total);
        }
        let context = &mut solution.context[query_row * d_value..][..d_value];
        for (j, _, weight) in &weights {
            solution.weights[query_row * seq_k + j] = weight / total;
            let value = vector(&inputs.value, first_key + j, d_value);
            add(context, weight / total, &value);
        }
        let mean = match feature_map {
            Some(_) => dot(&output_grad, context),
            None => 0.0,
        };

        let mut d_features = vec![0.0; query_features.len()];
        let mut feature_terms = vec![0.0; query_features.len()];
        for (j, slope, weight) in weights {
            let key_row = first_key + j;
            let d_weight = dot(&output_grad, &vector(&inputs.value, key_row, d_value));
            add_row(&mut solution.d_value, key_row, weight / total, &output_grad);
            let key = &mut keys[key_row];
            let d_product = slope * (d_weight - mean) / total;
            add(&mut d_features, d_product, &key.features);
            add(&mut key.d, d_product, &query_features);
            // The same with absolute terms, which determine the rounding error.
            let terms = slope.abs() * (d_weight.abs() + mean.abs()) / total;
            add_abs(&mut feature_terms, terms, &key.features);
            add_abs(&mut key.terms, terms, &query_features);
        }
        let d_query = backward(&query, &d_features);
        add_row(&mut solution.d_query, query_row, query_scale, &d_query);
        let terms = query_scale.abs() * max_abs(&backward(&query, &feature_terms));
        solution.terms.d_query = solution.terms.d_query.max(terms);
    }
    for (key_row, key) in keys.iter().enumerate() {
        let d_key = backward(&key.key, &key.d);
        add_row(&mut solution.d_key, key_row, key_scale, &d_key);
        let terms = key_scale.abs() * max_abs(&backward(&key.key, &key.terms));
        solution.terms.d_key = solution.terms.d_key.max(terms);
        solution.largest_score = solution.largest_score.max(max_exponent(&key.key));
    }
    solution
}

struct Key {
    key: Vec<f64>,
    features: Vec<f64>,
    /// Gradient of the features.
    d: Vec<f64>,
    /// The same with absolute terms.
    terms: Vec<f64>,
}

/// `sum += factor * |vector|`
fn add_abs(sum: &mut [f64], factor: f64, vector: &[f64]) {
    for (sum, x) in sum.iter_mut().zip(vector) {
        *sum += factor * x.abs();
    }
}

fn max_abs(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |max: f64, x| max.max(x.abs()))
}
