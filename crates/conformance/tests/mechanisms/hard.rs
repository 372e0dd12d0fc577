//! Attention to one key: which, its weights, and what has no gradient.

use burn::tensor::{Device, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{AttentionOptions, Choice, Pattern, hard};
use zoo_conformance::{Suite, Tensors, Test, is_refused, numbers};
use zoo_oracle::{Formula, Precision, find, solve};

pub(crate) fn trials(suite: &mut Suite) {
    for name in PROBLEMS {
        suite.add_training(format!("hard/{name}/best"), move |device| {
            the_best_alone(name, device)
        });
        suite.add(format!("hard/{name}/weights"), move |device| {
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

fn the_best_alone(name: &str, device: &Device) -> Result<(), Failed> {
    let problem = find(name)
        .expect("a problem of the catalogue")
        .with_formula(Formula::Best);
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let attended =
        tensors.apply(|query, key, value, options| hard(query, key, value, Choice::Best, options));
    let gradients = tensors.backward(attended.context.clone());
    let answer = solve(&problem, &inputs);
    let exact = Precision::F32.forward(0.0);
    exact.check("context", &numbers(attended.context), &answer.context)?;
    exact.check("weights", &numbers(attended.weights), &answer.weights)?;
    let by_value = tensors.value.grad(&gradients).ok_or("values are taken")?;
    Precision::F32
        .backward(0.0)
        .check("d_value", &numbers(by_value), &answer.d_value)?;
    let others = [&tensors.query, &tensors.key];
    let is_none = |tensor: &&Tensor<4>| tensor.grad(&gradients).is_none();
    assert!(others.iter().all(is_none), "a choice has a gradient");
    Ok(())
}

fn weights_are_one_or_nothing(name: &str, device: &Device) -> Result<(), Failed> {
    let (temperature, seed) = (0.5, 23);
    let problem = find(name)
        .expect("a problem of the catalogue")
        .with_formula(Formula::Sampled { temperature, seed });
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let choice = Choice::Sampled { temperature, seed };
    let attended =
        tensors.apply(|query, key, value, options| hard(query, key, value, choice, options));
    let want = solve(&problem, &inputs).weights;
    for (at, (got, want)) in numbers(attended.weights).iter().zip(&want).enumerate() {
        assert!(
            f64::from(*got) == *want,
            "weight {at} is {got} instead of {want}"
        );
    }
    Ok(())
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
            let got = weights(
                &ones(2),
                &ones(seq_k),
                Choice::Best,
                &AttentionOptions::new(),
            );
            for row in got.chunks(seq_k) {
                let later = row[1..].iter().any(|&weight| weight != 0.0);
                assert!(row[0] == 1.0 && !later, "{row:?}");
            }
        }
        // Of those that are seen.
        let window = Pattern::Window { left: 1, right: 0 };
        let options = AttentionOptions::new().with_pattern(window);
        let got = weights(&ones(3), &ones(3), Choice::Best, &options);
        assert!(
            got == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0],
            "{got:?}"
        );
        Ok(())
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
            weights(
                &query,
                &key,
                Choice::Sampled { temperature, seed },
                &options,
            )
        };
        let (got, other) = (of(1), of(2));
        for (key, expected) in [1.0 / 8.0, 2.0 / 8.0, 5.0 / 8.0].into_iter().enumerate() {
            let taken = got.chunks(3).filter(|row| row[key] == 1.0).count();
            let share = taken as f64 / QUERIES as f64;
            let error = (expected * (1.0 - expected) / QUERIES as f64).sqrt();
            // Five standard errors.
            assert!(
                (share - expected).abs() <= 5.0 * error,
                "key {key}: {share} instead of {expected}"
            );
        }
        assert!(got != other, "another seed chose the same");
        Ok(())
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
            assert!(got == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0], "{choice:?}: {got:?}");
        }
        Ok(())
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
