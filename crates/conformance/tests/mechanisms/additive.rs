//! Attention by the score of a small network: its weights, and the gradient by its own
//! parameter.

use burn::tensor::{Device, Tensor, TensorData};
use libtest_mimic::{Failed, Trial};
use zoo_attention::{AttentionOptions, additive, drawn_matrix, multiplicative};
use zoo_conformance::{Tensors, numbers};
use zoo_oracle::{Formula, Precision, Problem, find, solve};

pub(crate) fn trials(device: &Device) -> Vec<Trial> {
    let mut trials: Vec<Trial> = PROBLEMS
        .iter()
        .map(|name| {
            let device = device.clone().autodiff();
            Trial::test(format!("additive/{name}/by-its-vector"), move || {
                matches_the_oracle(name, &device)
            })
        })
        .collect();
    trials.extend(["odd", "multi-query"].map(|name| {
        let device = device.clone().autodiff();
        Trial::test(format!("multiplicative/{name}/by-its-matrix"), move || {
            gradient_by_the_matrix(name, &device)
        })
    }));
    let device = device.clone();
    trials.push(Trial::test(
        "additive/misuse/a-vector-of-another-size",
        move || {
            let zeros = || Tensor::<4>::zeros([1, 2, 3, 4], &device);
            let vector = || Tensor::<2>::zeros([2, 3], &device);
            crate::misuses::is_refused(
                || {
                    additive(
                        zeros(),
                        zeros(),
                        zeros(),
                        vector(),
                        &AttentionOptions::new(),
                    );
                },
                "additive attention: the vector must be [heads = 2, d_head = 4], got [2, 3]",
            )
        },
    ));
    trials
}

/// Options, shared heads, more keys than queries, rows that see nothing, several tiles.
const PROBLEMS: &[&str] = &[
    "one",
    "odd",
    "causal-more-queries",
    "dense-mask",
    "everything",
    "multi-query",
    "translate-cross",
];

fn gradient_by_the_matrix(name: &str, device: &Device) -> Result<(), Failed> {
    let problem = find(name).expect("a problem of the catalogue");
    let (heads, d_head) = (problem.heads, problem.d_head);
    let matrices = drawn_matrix(heads, d_head);
    let problem = Problem {
        formula: Formula::Multiplicative(matrices.clone()),
        ..problem
    };
    let inputs = problem.inputs();
    let Tensors {
        query,
        key,
        value,
        upstream,
        options,
    } = Tensors::new(&problem, &inputs, device);
    let matrix = TensorData::new(matrices, [heads, d_head, d_head]);
    let matrix = Tensor::<3>::from_data(matrix, device).require_grad();
    let context = multiplicative(query, key, value, matrix.clone(), &options);
    let gradients = (context * upstream).sum().backward();
    let gradient = matrix.grad(&gradients).ok_or("the result depends on it")?;
    let answer = solve(&problem, &inputs);
    Precision::F32.backward(answer.largest_score).check(
        "d_matrix",
        &numbers(gradient.reshape([1, heads, d_head, d_head])),
        &answer.d_matrix,
    )?;
    Ok(())
}

fn matches_the_oracle(name: &str, device: &Device) -> Result<(), Failed> {
    let problem = find(name).expect("a problem of the catalogue");
    let drawn = Problem::new("vectors", [1, 1, problem.heads, 1, problem.d_head]).inputs();
    let vectors = drawn.query;
    let problem = Problem {
        formula: Formula::Additive(vectors.clone()),
        ..problem
    };
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let vector = TensorData::new(vectors, [problem.heads, problem.d_head]);
    let vector = Tensor::<2>::from_data(vector, device).require_grad();
    let Tensors {
        query,
        key,
        value,
        upstream,
        options,
    } = tensors.clone();
    let attended = additive(query, key, value, vector.clone(), &options);
    let gradients = (attended.context.clone() * upstream).sum().backward();

    let answer = solve(&problem, &inputs);
    let forward = Precision::F32.forward(answer.largest_score);
    forward.check("context", &numbers(attended.context), &answer.context)?;
    forward.check("weights", &numbers(attended.weights), &answer.weights)?;
    let backward = Precision::F32.backward(answer.largest_score);
    let by_vector = vector
        .grad(&gradients)
        .map(|gradient| gradient.reshape([1, 1, -1, 1]));
    for (what, gradient, want, least) in [
        (
            "d_query",
            tensors.query.grad(&gradients),
            &answer.d_query,
            answer.terms.d_query,
        ),
        (
            "d_key",
            tensors.key.grad(&gradients),
            &answer.d_key,
            answer.terms.d_key,
        ),
        (
            "d_value",
            tensors.value.grad(&gradients),
            &answer.d_value,
            0.0,
        ),
        // A sum over all queries and keys of what mostly cancels.
        ("d_vector", by_vector, &answer.d_vector, answer.terms.d_bias),
    ] {
        let gradient = gradient.ok_or("the result depends on all of them")?;
        backward.check_as_large_as(least, what, &numbers(gradient), want)?;
    }
    Ok(())
}
