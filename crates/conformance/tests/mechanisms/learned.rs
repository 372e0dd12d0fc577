//! Mechanisms with parameters of their own: their weights, and the gradients by what is learned.

use burn::tensor::{Device, Tensor, TensorData};
use libtest_mimic::Failed;
use zoo_attention::{AttentionOptions, additive, drawn_matrix, local_predictive, multiplicative};
use zoo_conformance::{Suite, Tensors, is_refused, numbers};
use zoo_oracle::{Formula, Precision, Problem, find, solve};

/// A mechanism that learns.
#[derive(Clone, Copy)]
enum Learned {
    /// A vector for each head.
    Additive,
    /// A matrix for each head.
    Multiplicative,
    /// Both, with a window of so many positions.
    Predictive(usize),
}

/// Options, shared heads, more keys and more queries, lengths and padding, rows that see
/// nothing, several tiles.
const PROBLEMS: &[(&str, Learned)] = &[
    ("one", Learned::Additive),
    ("odd", Learned::Additive),
    ("causal-more-queries", Learned::Additive),
    ("dense-mask", Learned::Additive),
    ("everything", Learned::Additive),
    ("multi-query", Learned::Additive),
    ("translate-cross", Learned::Additive),
    ("odd", Learned::Multiplicative),
    ("multi-query", Learned::Multiplicative),
    ("one", Learned::Predictive(1)),
    ("odd", Learned::Predictive(3)),
    ("causal-more-queries", Learned::Predictive(2)),
    ("key-lengths", Learned::Predictive(2)),
    ("key-padding", Learned::Predictive(1)),
    ("dense-mask", Learned::Predictive(2)),
    ("everything", Learned::Predictive(25)),
    ("multi-query", Learned::Predictive(3)),
    ("translate-cross", Learned::Predictive(10)),
];

pub(crate) fn trials(suite: &mut Suite) {
    for &(name, learned) in PROBLEMS {
        let trial = match learned {
            Learned::Additive => format!("additive/{name}/by-its-vector"),
            Learned::Multiplicative => format!("multiplicative/{name}/by-its-matrix"),
            Learned::Predictive(_) => format!("local-p/{name}/by-what-is-learned"),
        };
        suite.add_training(trial, move |device| {
            matches_the_oracle(name, learned, device)
        });
    }
    suite.add("additive/misuse/a-vector-of-another-size", |device| {
        let vector = Tensor::<2>::zeros([2, 3], device);
        let refused = "additive attention: the vector must be [heads = 2, d_head = 4], got [2, 3]";
        is_refused(
            || zeros(device).apply(|q, k, v, options| additive(q, k, v, vector, options)),
            refused,
        )
    });
    suite.add("local-p/misuse", |device| {
        for (vector, matrix, window, refused) in [
            (
                [2, 3],
                [2, 4, 4],
                1,
                "the vector must be [heads = 2, d_head = 4], got [2, 3]",
            ),
            (
                [2, 4],
                [2, 4, 3],
                1,
                "the matrix must be [heads = 2, d_head = 4, d_head = 4], got [2, 4, 3]",
            ),
            ([2, 4], [2, 4, 4], 0, "a window must be at least 1, got 0"),
        ] {
            let learned = (Tensor::zeros(vector, device), Tensor::zeros(matrix, device));
            is_refused(
                || {
                    zeros(device).apply(|query, key, value, options| {
                        local_predictive(query, key, value, learned, window, options)
                    })
                },
                &format!("local-p attention: {refused}"),
            )?;
        }
        Ok(())
    });
}

/// Two heads of three positions.
fn zeros(device: &Device) -> Tensors {
    let zeros = Tensor::<4>::zeros([1, 2, 3, 4], device);
    Tensors {
        query: zeros.clone(),
        key: zeros.clone(),
        value: zeros.clone(),
        upstream: zeros,
        options: AttentionOptions::new(),
    }
}

fn matches_the_oracle(name: &str, learned: Learned, device: &Device) -> Result<(), Failed> {
    let problem = find(name).expect("a problem of the catalogue");
    let (heads, d_head) = (problem.heads, problem.d_head);
    // So large that predicted positions are anywhere, not all in the middle.
    let drawn = |rows: usize, spread: f64| {
        let sizes = Problem::new("learned", [1, 1, rows, 1, d_head]);
        Problem { spread, ..sizes }.inputs().query
    };
    let vectors = drawn(heads, 1.0);
    let matrices = match learned {
        Learned::Multiplicative => drawn_matrix(heads, d_head),
        _ => drawn(heads * d_head, 0.5),
    };
    let vector = TensorData::new(vectors.clone(), [heads, d_head]);
    let vector = Tensor::<2>::from_data(vector, device).require_grad();
    let matrix = TensorData::new(matrices.clone(), [heads, d_head, d_head]);
    let matrix = Tensor::<3>::from_data(matrix, device).require_grad();
    let problem = problem.with_formula(match learned {
        Learned::Additive => Formula::Additive(vectors),
        Learned::Multiplicative => Formula::Multiplicative(matrices),
        Learned::Predictive(window) => Formula::Predicted {
            vectors,
            matrices,
            window,
        },
    });
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (context, weights) = tensors.apply(|query, key, value, options| match learned {
        Learned::Additive => {
            let attended = additive(query, key, value, vector.clone(), options);
            (attended.context, Some(attended.weights))
        }
        Learned::Multiplicative => {
            let context = multiplicative(query, key, value, matrix.clone(), options);
            (context, None)
        }
        Learned::Predictive(window) => {
            let both = (vector.clone(), matrix.clone());
            let attended = local_predictive(query, key, value, both, window, options);
            (attended.context, Some(attended.weights))
        }
    });
    let gradients = tensors.backward(context.clone());

    let answer = solve(&problem, &inputs);
    let forward = Precision::F32.forward(answer.largest_score);
    forward.check("context", &numbers(context), &answer.context)?;
    if let Some(weights) = weights {
        forward.check("weights", &numbers(weights), &answer.weights)?;
    }
    let backward = Precision::F32.backward(answer.largest_score);
    tensors.check_gradients(&gradients, &answer, backward)?;
    if !answer.d_vector.is_empty() {
        // A sum over all queries and keys of what mostly cancels.
        let least = match learned {
            Learned::Additive => answer.terms.d_bias,
            _ => answer.terms.d_vector,
        };
        let by_vector = numbers(vector.grad(&gradients).ok_or("it is learned")?);
        backward.check_as_large_as(least, "d_vector", &by_vector, &answer.d_vector)?;
    }
    if !answer.d_matrix.is_empty() {
        let by_matrix = numbers(matrix.grad(&gradients).ok_or("it is learned")?);
        backward.check("d_matrix", &by_matrix, &answer.d_matrix)?;
    }
    Ok(())
}
