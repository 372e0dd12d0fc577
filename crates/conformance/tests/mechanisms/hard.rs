//! Hard attention: selected keys, weights and gradients.

use zoo_attention::mechanisms::hard::{HardSelection, hard, hard_with_weights};

use crate::prelude::*;

pub(crate) fn trials(suite: &mut Suite) {
    for name in PROBLEMS {
        let trial = format!("hard/{name}/argmax");
        suite.add_training(trial, move |device| check_argmax(name, device));
        let trial = format!("hard/{name}/weights");
        suite.add(trial, move |device| check_sampled_weights(name, device));
    }
    suite.add_table("hard/", TESTS);
}

/// Options, shared heads, more keys and more queries, fully masked rows.
const PROBLEMS: &[&str] = &[
    "one",
    "odd",
    "causal-more-queries",
    "dense-mask",
    "everything",
    "multi-query",
];

/// Context and weights.
fn attend(tensors: &Tensors, choice: HardSelection) -> [Tensor<4>; 2] {
    [
        tensors.apply(|q, k, v, options| hard(q, k, v, choice, options)),
        tensors
            .apply(|q, k, v, options| hard_with_weights(q, k, v, choice, options))
            .into_weights(),
    ]
}

fn check_argmax(name: &str, device: &Device) {
    let problem = find_problem(name).with_formula(Formula::Argmax);
    let tensors = Tensors::from_problem(&problem, device).require_grad();
    let [context, weights] = attend(&tensors, HardSelection::Best);
    let gradients = tensors.backward(context.clone());
    let solution = solve(&problem, &problem.inputs());
    let exact = Precision::F32.forward(0.0);
    must(exact.check("context", &to_vec(context), &solution.context));
    must(exact.check("weights", &to_vec(weights), &solution.weights));
    let d_value = to_vec(tensors.value.grad(&gradients).expect("a gradient"));
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.check("d_value", &d_value, &solution.d_value));
    for tensor in [&tensors.query, &tensors.key] {
        assert!(tensor.grad(&gradients).is_none(), "unexpected gradient");
    }
}

fn check_sampled_weights(name: &str, device: &Device) {
    let (temperature, seed) = (0.5, 23);
    let problem = find_problem(name).with_formula(Formula::Sampled { temperature, seed });
    let choice = HardSelection::Sampled { temperature, seed };
    let [_, got] = attend(&Tensors::from_problem(&problem, device), choice);
    let got: Vec<f64> = to_vec(got).into_iter().map(f64::from).collect();
    assert_eq!(got, solve(&problem, &problem.inputs()).weights);
}

fn weights(
    query: &Tensor<4>,
    key: &Tensor<4>,
    choice: HardSelection,
    options: &AttentionOptions,
) -> Vec<f32> {
    // With the identity as values, the context is the weights.
    let [batch, heads, seq_q, _] = query.dims();
    let [_, kv_heads, seq_k, _] = key.dims();
    let identity = Tensor::<2>::eye(seq_k, &query.device())
        .reshape([1, 1, seq_k, seq_k])
        .expand([batch, kv_heads, seq_k, seq_k]);
    let context = hard(query.clone(), key.clone(), identity, choice, options);
    let weights = hard_with_weights(query.clone(), key.clone(), key.clone(), choice, options);
    assert_eq!(to_vec(context.clone()), to_vec(weights.into_weights()));
    to_vec(context.reshape([batch, heads, seq_q, seq_k]))
}

const TESTS: &[(&str, Test)] = &[
    ("argmax-of-equal-scores-is-the-first", |device| {
        let ones = |seq: usize| Tensor::<4>::ones([1, 1, seq, 2], device);
        // Shorter and longer than a SIMD register or a GPU plane.
        for seq_k in [3, 70] {
            let options = AttentionOptions::new();
            let got = weights(&ones(2), &ones(seq_k), HardSelection::Best, &options);
            for row in got.chunks(seq_k) {
                let rest_is_zero = row[1..].iter().all(|&weight| weight == 0.0);
                assert!(row[0] == 1.0 && rest_is_zero, "{row:?}");
            }
        }
        // Among the visible keys.
        let window = Pattern::Window { left: 1, right: 0 };
        let options = AttentionOptions::new().with_pattern(window);
        let got = weights(&ones(3), &ones(3), HardSelection::Best, &options);
        assert_eq!(got, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }),
    ("samples-follow-the-softmax", |device| {
        const QUERIES: usize = 4000;
        let query = Tensor::<4>::ones([1, 1, QUERIES, 1], device);
        // exp: 1, 2, 5
        let key = [[[[0.0], [2f32.ln()], [5f32.ln()]]]];
        let key = Tensor::<4>::from_data(key, device);
        let options = AttentionOptions::new().with_scale(1.0);
        let sample = |seed| {
            let temperature = 1.0;
            let choice = HardSelection::Sampled { temperature, seed };
            weights(&query, &key, choice, &options)
        };
        let (got, other) = (sample(1), sample(2));
        for (key, expected) in [1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0].into_iter().enumerate() {
            let count = got.chunks(3).filter(|row| row[key] == 1.0).count();
            let fraction = count as f64 / QUERIES as f64;
            let error = (expected * (1.0 - expected) / QUERIES as f64).sqrt();
            // Five standard errors.
            let is_close = (fraction - expected).abs() <= 5.0 * error;
            assert!(is_close, "key {key}: {fraction}, expected {expected}");
        }
        assert!(got != other, "another seed selected the same keys");
    }),
    ("bias-of-minus-infinity-masks", |device| {
        let infinity = f32::NEG_INFINITY;
        let bias = [[[[infinity, 0.0, infinity], [infinity; 3]]]];
        let bias = Tensor::<4>::from_data(bias, device);
        let query = Tensor::<4>::ones([1, 1, 2, 2], device);
        let key = Tensor::<4>::ones([1, 1, 3, 2], device);
        let options = AttentionOptions::new().with_bias(bias);
        let sampled = HardSelection::Sampled {
            temperature: 1.0,
            seed: 4,
        };
        for choice in [HardSelection::Best, sampled] {
            let got = weights(&query, &key, choice, &options);
            assert_eq!(got, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0], "{choice:?}");
        }
    }),
    ("invalid/temperature-of-zero", |device| {
        let zeros = || Tensor::<4>::zeros([1, 2, 3, 4], device);
        let choice = HardSelection::Sampled {
            temperature: 0.0,
            seed: 0,
        };
        assert_panics_with(
            || hard(zeros(), zeros(), zeros(), choice, &AttentionOptions::new()),
            "hard attention: a temperature must be from 1e-6 to 1e6, got 0",
        )
    }),
];
