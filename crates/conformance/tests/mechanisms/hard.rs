//! Attention to one key: which, its weights, and what has no gradient.

use burn::tensor::{Device, Tensor};
use zoo_attention::{AttentionOptions, Choice, Pattern, hard};
use zoo_conformance::*;
use zoo_oracle::{Formula, Precision, solve};

use crate::named;

pub(crate) fn trials(suite: &mut Suite) {
    for name in PROBLEMS {
        let trial = format!("hard/{name}/best");
        suite.add_training(trial, move |device| the_best_alone(name, device));
        let trial = format!("hard/{name}/weights");
        suite.add(trial, move |device| {
            weights_are_one_or_nothing(name, device)
        });
    }
    suite.add_table("hard/", TESTS);
}

/// Options, shared heads, more keys and more queries, rows that see nothing.
const PROBLEMS: &[&str] = &[
    "one",
    "odd",
    "causal-more-queries",
    "dense-mask",
    "everything",
    "multi-query",
];

/// Context and weights.
fn by(tensors: &Tensors, choice: Choice) -> [Tensor<4>; 2] {
    let attended = tensors.apply(|q, k, v, options| hard(q, k, v, choice, options));
    [attended.context, attended.weights]
}

fn the_best_alone(name: &str, device: &Device) {
    let problem = named(name).with_formula(Formula::Best);
    let tensors = Tensors::of(&problem, device).require_grad();
    let [context, weights] = by(&tensors, Choice::Best);
    let gradients = tensors.backward(context.clone());
    let answer = solve(&problem, &problem.inputs());
    let exact = Precision::F32.forward(0.0);
    must(exact.check("context", &numbers(context), &answer.context));
    must(exact.check("weights", &numbers(weights), &answer.weights));
    let by_value = numbers(tensors.value.grad(&gradients).expect("values are taken"));
    must(
        Precision::F32
            .backward(0.0)
            .check("d_value", &by_value, &answer.d_value),
    );
    for tensor in [&tensors.query, &tensors.key] {
        assert!(tensor.grad(&gradients).is_none(), "a choice has a gradient");
    }
}

fn weights_are_one_or_nothing(name: &str, device: &Device) {
    let (temperature, seed) = (0.5, 23);
    let problem = named(name).with_formula(Formula::Sampled { temperature, seed });
    let choice = Choice::Sampled { temperature, seed };
    let [_, got] = by(&Tensors::of(&problem, device), choice);
    let got: Vec<f64> = numbers(got).into_iter().map(f64::from).collect();
    assert_eq!(got, solve(&problem, &problem.inputs()).weights);
}

/// The weights of a choice among the same keys as values.
fn weights(
    query: &Tensor<4>,
    key: &Tensor<4>,
    choice: Choice,
    options: &AttentionOptions,
) -> Vec<f32> {
    let attended = hard(query.clone(), key.clone(), key.clone(), choice, options);
    numbers(attended.weights)
}

const TESTS: &[(&str, Test)] = &[
    ("the-first-of-equals", |device| {
        let ones = |seq: usize| Tensor::<4>::ones([1, 1, seq, 2], device);
        // Both as long as a line of a vector unit or a plane of a GPU, and longer.
        for seq_k in [3, 70] {
            let options = AttentionOptions::new();
            let got = weights(&ones(2), &ones(seq_k), Choice::Best, &options);
            for row in got.chunks(seq_k) {
                let later = row[1..].iter().any(|&weight| weight != 0.0);
                assert!(row[0] == 1.0 && !later, "{row:?}");
            }
        }
        // Of those that are seen.
        let window = Pattern::Window { left: 1, right: 0 };
        let options = AttentionOptions::new().with_pattern(window);
        let got = weights(&ones(3), &ones(3), Choice::Best, &options);
        assert_eq!(got, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);
    }),
    ("takes-a-key-as-often-as-softmax-weighs-it", |device| {
        const QUERIES: usize = 4000;
        let query = Tensor::<4>::ones([1, 1, QUERIES, 1], device);
        // exp: 1, 2, 5
        let key = [[[[0.0], [2f32.ln()], [5f32.ln()]]]];
        let key = Tensor::<4>::from_data(key, device);
        let options = AttentionOptions::new().with_scale(1.0);
        let of = |seed| {
            let temperature = 1.0;
            let choice = Choice::Sampled { temperature, seed };
            weights(&query, &key, choice, &options)
        };
        let (got, other) = (of(1), of(2));
        for (key, expected) in [1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0].into_iter().enumerate() {
            let taken = got.chunks(3).filter(|row| row[key] == 1.0).count();
            let share = taken as f64 / QUERIES as f64;
            let error = (expected * (1.0 - expected) / QUERIES as f64).sqrt();
            // Five standard errors.
            let is_near = (share - expected).abs() <= 5.0 * error;
            assert!(is_near, "key {key}: {share} instead of {expected}");
        }
        assert!(got != other, "another seed chose the same");
    }),
    ("a-bias-of-minus-infinity-hides", |device| {
        let infinity = f32::NEG_INFINITY;
        let bias = [[[[infinity, 0.0, infinity], [infinity; 3]]]];
        let bias = Tensor::<4>::from_data(bias, device);
        let query = Tensor::<4>::ones([1, 1, 2, 2], device);
        let key = Tensor::<4>::ones([1, 1, 3, 2], device);
        let options = AttentionOptions::new().with_bias(bias);
        let sampled = Choice::Sampled {
            temperature: 1.0,
            seed: 4,
        };
        for choice in [Choice::Best, sampled] {
            let got = weights(&query, &key, choice, &options);
            assert_eq!(got, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0], "{choice:?}");
        }
    }),
    ("misuse/a-temperature-of-zero", |device| {
        let zeros = || Tensor::<4>::zeros([1, 2, 3, 4], device);
        let choice = Choice::Sampled {
            temperature: 0.0,
            seed: 0,
        };
        is_refused(
            || hard(zeros(), zeros(), zeros(), choice, &AttentionOptions::new()),
            "hard attention: a temperature must be from 1e-6 to 1e6, got 0",
        )
    }),
];
