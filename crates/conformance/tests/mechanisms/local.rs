//! Attention around a place: by what is learned, and what padding does to it.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, Pattern, flash, local_monotonic, local_predictive};
use zoo_conformance::{Tensors, numbers};
use zoo_oracle::{Formula, Precision, Problem, find, solve};

type Test = fn(&Device) -> Result<(), Failed>;

pub(crate) fn trials(device: &Device) -> Vec<Trial> {
    let mut trials: Vec<Trial> = PROBLEMS
        .iter()
        .map(|&(name, window)| {
            let device = device.clone().autodiff();
            Trial::test(format!("local-p/{name}/by-what-is-learned"), move || {
                matches_the_oracle(name, window, &device)
            })
        })
        .collect();
    trials.extend(TESTS.iter().map(|(name, test)| {
        let device = device.clone();
        Trial::test((*name).to_owned(), move || test(&device))
    }));
    trials
}

/// Options, shared heads, more keys and more queries, lengths and padding, rows that see
/// nothing.
const PROBLEMS: &[(&str, usize)] = &[
    ("one", 1),
    ("odd", 3),
    ("causal-more-queries", 2),
    ("key-lengths", 2),
    ("key-padding", 1),
    ("dense-mask", 2),
    ("everything", 25),
    ("multi-query", 3),
    ("translate-cross", 10),
];

/// Vectors and matrices so large that places are anywhere, not all in the middle.
fn learned(heads: usize, d_head: usize) -> (Vec<f32>, Vec<f32>) {
    let of = |rows: usize, spread: f64| {
        let problem = Problem {
            spread,
            ..Problem::new("learned", [1, 1, rows, 1, d_head])
        };
        problem.inputs().query
    };
    (of(heads, 1.0), of(heads * d_head, 0.5))
}

fn tensors_of(
    (vectors, matrices): (Vec<f32>, Vec<f32>),
    [heads, d_head]: [usize; 2],
    device: &Device,
) -> (Tensor<2>, Tensor<3>) {
    let vector = TensorData::new(vectors, [heads, d_head]);
    let matrix = TensorData::new(matrices, [heads, d_head, d_head]);
    (
        Tensor::from_data(vector, device),
        Tensor::from_data(matrix, device),
    )
}

fn matches_the_oracle(name: &str, window: usize, device: &Device) -> Result<(), Failed> {
    let problem = find(name).expect("a problem of the catalogue");
    let (heads, d_head) = (problem.heads, problem.d_head);
    let (vectors, matrices) = learned(heads, d_head);
    let problem = Problem {
        formula: Formula::Predicted {
            vectors: vectors.clone(),
            matrices: matrices.clone(),
            window,
        },
        ..problem
    };
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (vector, matrix) = tensors_of((vectors, matrices), [heads, d_head], device);
    let (vector, matrix) = (vector.require_grad(), matrix.require_grad());
    let Tensors {
        query,
        key,
        value,
        upstream,
        options,
    } = tensors.clone();
    let learned = (vector.clone(), matrix.clone());
    let attended = local_predictive(query, key, value, learned, window, &options);
    let gradients = (attended.context.clone() * upstream).sum().backward();

    let answer = solve(&problem, &inputs);
    let forward = Precision::F32.forward(answer.largest_score);
    forward.check("context", &numbers(attended.context), &answer.context)?;
    forward.check("weights", &numbers(attended.weights), &answer.weights)?;
    let backward = Precision::F32.backward(answer.largest_score);
    let terms = answer.terms;
    let by_vector = vector.grad(&gradients).map(|by| by.reshape([1, 1, -1, 1]));
    let by_matrix = matrix.grad(&gradients).map(|by| by.reshape([1, 1, -1, 1]));
    let of = |tensor: &Tensor<4>| tensor.grad(&gradients);
    for (what, gradient, want, least) in [
        (
            "d_query",
            of(&tensors.query),
            &answer.d_query,
            terms.d_query,
        ),
        ("d_key", of(&tensors.key), &answer.d_key, terms.d_key),
        ("d_value", of(&tensors.value), &answer.d_value, 0.0),
        ("d_vector", by_vector, &answer.d_vector, terms.d_vector),
        ("d_matrix", by_matrix, &answer.d_matrix, 0.0),
    ] {
        let gradient = gradient.ok_or("the result depends on all of them")?;
        backward.check_as_large_as(least, what, &numbers(gradient), want)?;
    }
    Ok(())
}

const TESTS: &[(&str, Test)] = &[
    ("local-p/padding-changes-nothing", |device| {
        let lengths = [9, 4];
        let problem = Problem::new("padded", [2, 2, 5, 9, 4]);
        let Tensors {
            query, key, value, ..
        } = Tensors::new(&problem, &problem.inputs(), device);
        let of = |[query, key, value]: [&Tensor<4>; 3], pattern: Pattern| {
            let learned = tensors_of(learned(2, 4), [2, 4], device);
            let options = AttentionOptions::new().with_pattern(pattern);
            let [query, key, value] = [query, key, value].map(Clone::clone);
            local_predictive(query, key, value, learned, 3, &options).context
        };
        let alone = lengths.iter().enumerate().map(|(example, &length)| {
            let own = |tensor: &Tensor<4>| tensor.clone().slice_dim(0, example..example + 1);
            let cut = |tensor: &Tensor<4>| own(tensor).slice_dim(2, 0..length);
            of([&own(&query), &cut(&key), &cut(&value)], Pattern::Full)
        });
        let alone = numbers(Tensor::cat(alone.collect(), 0));
        let padding = (lengths.iter()).flat_map(|&length| (0..9).map(move |j| j >= length));
        let padding = TensorData::new(padding.collect(), [2, 9]);
        let padding = Tensor::<2, Bool>::from_data(padding, device);
        let want: Vec<f64> = alone.iter().map(|&x| f64::from(x)).collect();
        for pattern in [
            Pattern::key_lengths(lengths),
            Pattern::KeyPadding(padding.clone()),
            Pattern::Full
                .and(Pattern::KeyPadding(padding))
                .and(Pattern::key_lengths(lengths)),
        ] {
            let padded = numbers(of([&query, &key, &value], pattern));
            Precision::F32
                .forward(0.0)
                .check("context", &padded, &want)?;
        }
        Ok(())
    }),
    ("local-p/a-plain-mask-serves-a-training-tensor", |device| {
        let problem = find("key-padding").expect("a problem of the catalogue");
        let inputs = problem.inputs();
        let plain = Tensors::new(&problem, &inputs, device);
        let of = |device: &Device| {
            let Tensors {
                query, key, value, ..
            } = Tensors::new(&problem, &inputs, device);
            let learned = tensors_of(learned(2, 4), [2, 4], device);
            let attended = local_predictive(query, key, value, learned, 2, &plain.options);
            numbers(attended.context)
        };
        let want: Vec<f64> = of(device).into_iter().map(f64::from).collect();
        let training = of(&device.clone().autodiff());
        Precision::F32
            .forward(0.0)
            .check("context", &training, &want)?;
        Ok(())
    }),
    ("local-p/misuse", |device| {
        let zeros = || Tensor::<4>::zeros([1, 2, 3, 4], device);
        let refused = |vector: [usize; 2], matrix: [usize; 3], window: usize, message: &str| {
            crate::misuses::is_refused(
                || {
                    let learned = (
                        Tensor::<2>::zeros(vector, device),
                        Tensor::<3>::zeros(matrix, device),
                    );
                    let options = AttentionOptions::new();
                    local_predictive(zeros(), zeros(), zeros(), learned, window, &options);
                },
                message,
            )
        };
        refused(
            [2, 3],
            [2, 4, 4],
            1,
            "local-p attention: the vector must be [heads = 2, d_head = 4], got [2, 3]",
        )?;
        refused(
            [2, 4],
            [2, 4, 3],
            1,
            "local-p attention: the matrix must be [heads = 2, d_head = 4, d_head = 4], \
             got [2, 4, 3]",
        )?;
        refused(
            [2, 4],
            [2, 4, 4],
            0,
            "local-p attention: a window must be at least 1, got 0",
        )
    }),
    // As said in its docs: the first queries of more, or all of fewer, see what a window
    // over as many keys shows them.
    ("local-m/is-a-window-from-the-first-on", |device| {
        let window = 2;
        let sliding = AttentionOptions::new().with_pattern(Pattern::Window {
            left: window,
            right: window,
        });
        for (seq_q, seq_k) in [(5, 5), (4, 12), (9, 5)] {
            let problem = Problem::new("level", [1, 2, seq_q, seq_k, 4]);
            let Tensors {
                query, key, value, ..
            } = Tensors::new(&problem, &problem.inputs(), device);
            let got = local_monotonic(
                query.clone(),
                key.clone(),
                value.clone(),
                window,
                &AttentionOptions::new(),
            );
            // Query by query, each made the last one, level with the last key of its window.
            for i in 0..seq_q {
                let own = query.clone().slice_dim(2, i..i + 1);
                let keys = i.saturating_sub(window).min(seq_k)..seq_k.min(i + window + 1);
                let got = numbers(got.clone().slice_dim(2, i..i + 1));
                if keys.is_empty() {
                    if got.iter().any(|&x| x != 0.0) {
                        return Err(format!("query {i} sees nothing and is {got:?}").into());
                    }
                    continue;
                }
                let [key, value] =
                    [&key, &value].map(|tensor| tensor.clone().slice_dim(2, keys.clone()));
                let want = numbers(flash(own, key, value, &AttentionOptions::new()));
                let want: Vec<f64> = want.into_iter().map(f64::from).collect();
                Precision::F32.forward(0.0).check("context", &got, &want)?;
            }
            if seq_q == seq_k {
                let want: Vec<f64> = numbers(flash(query, key, value, &sliding))
                    .into_iter()
                    .map(f64::from)
                    .collect();
                let got = numbers(got);
                Precision::F32.forward(0.0).check("context", &got, &want)?;
            }
        }
        Ok(())
    }),
];
