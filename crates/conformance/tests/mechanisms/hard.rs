//! Attention to one key: which, its weights, and what has no gradient.

use burn::tensor::{Device, Tensor};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Choice, Pattern, hard};
use zoo_conformance::{Tensors, numbers};
use zoo_oracle::{Formula, Precision, Problem, find, solve};

type Test = fn(&Device) -> Result<(), Failed>;

pub(crate) fn trials(device: &Device) -> Vec<Trial> {
    let mut trials = Vec::new();
    for name in PROBLEMS {
        let autodiff = device.clone().autodiff();
        trials.push(Trial::test(format!("hard/{name}/best"), move || {
            the_best_alone(name, &autodiff)
        }));
        let device = device.clone();
        trials.push(Trial::test(format!("hard/{name}/weights"), move || {
            weights_are_one_or_nothing(name, &device)
        }));
    }
    trials.extend(TESTS.iter().map(|(name, test)| {
        let device = device.clone();
        Trial::test(format!("hard/{name}"), move || test(&device))
    }));
    trials
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
    let problem = Problem {
        formula: Formula::Best,
        ..find(name).expect("a problem of the catalogue")
    };
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let Tensors {
        query,
        key,
        value,
        upstream,
        options,
    } = tensors.clone();
    let attended = hard(query, key, value, Choice::Best, &options);
    let gradients = (attended.context.clone() * upstream).sum().backward();
    let answer = solve(&problem, &inputs);
    let exact = Precision::F32.forward(0.0);
    exact.check("context", &numbers(attended.context), &answer.context)?;
    exact.check("weights", &numbers(attended.weights), &answer.weights)?;
    let by_value = tensors.value.grad(&gradients).ok_or("values are taken")?;
    Precision::F32
        .backward(0.0)
        .check("d_value", &numbers(by_value), &answer.d_value)?;
    let others = [&tensors.query, &tensors.key];
    match others
        .iter()
        .any(|tensor| tensor.grad(&gradients).is_some())
    {
        true => Err("a choice has a gradient".into()),
        false => Ok(()),
    }
}

fn weights_are_one_or_nothing(name: &str, device: &Device) -> Result<(), Failed> {
    let (temperature, seed) = (0.5, 23);
    let problem = Problem {
        formula: Formula::Sampled { temperature, seed },
        ..find(name).expect("a problem of the catalogue")
    };
    let inputs = problem.inputs();
    let Tensors {
        query,
        key,
        value,
        options,
        ..
    } = Tensors::new(&problem, &inputs, device);
    let choice = Choice::Sampled { temperature, seed };
    let attended = hard(query, key, value, choice, &options);
    let want = solve(&problem, &inputs).weights;
    for (at, (got, want)) in numbers(attended.weights).iter().zip(&want).enumerate() {
        if f64::from(*got) != *want {
            return Err(format!("weight {at} is {got} instead of {want}").into());
        }
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
                if row[0] != 1.0 || later {
                    return Err(format!("{row:?}").into());
                }
            }
        }
        // Of those that are seen.
        let window = Pattern::Window { left: 1, right: 0 };
        let options = AttentionOptions::new().with_pattern(window);
        let got = weights(&ones(3), &ones(3), Choice::Best, &options);
        match got == [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0] {
            true => Ok(()),
            false => Err(format!("{got:?}").into()),
        }
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
            if (share - expected).abs() > 5.0 * error {
                return Err(format!("key {key}: {share} instead of {expected}").into());
            }
        }
        match got == other {
            true => Err("another seed chose the same".into()),
            false => Ok(()),
        }
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
            if got != [0.0, 1.0, 0.0, 0.0, 0.0, 0.0] {
                return Err(format!("{choice:?}: {got:?}").into());
            }
        }
        Ok(())
    }),
    ("a-plain-mask-serves-a-training-tensor", |device| {
        let problem = find("dense-mask").expect("a problem of the catalogue");
        let inputs = problem.inputs();
        let plain = Tensors::new(&problem, &inputs, device);
        let training = Tensors::new(&problem, &inputs, &device.clone().autodiff());
        let of = |tensors: &Tensors| {
            let Tensors {
                query, key, value, ..
            } = tensors.clone();
            numbers(hard(query, key, value, Choice::Best, &plain.options).context)
        };
        match of(&plain) == of(&training) {
            true => Ok(()),
            false => Err("training chose otherwise".into()),
        }
    }),
    ("misuse/a-temperature-of-zero", |device| {
        let zeros = || Tensor::<4>::zeros([1, 2, 3, 4], device);
        let choice = Choice::Sampled {
            temperature: 0.0,
            seed: 0,
        };
        crate::misuses::is_refused(
            || {
                hard(zeros(), zeros(), zeros(), choice, &AttentionOptions::new());
            },
            "hard attention: a temperature must be from 1e-6 to 1e6, got 0",
        )
    }),
];
