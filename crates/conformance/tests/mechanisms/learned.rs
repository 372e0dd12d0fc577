//! Mechanisms with parameters of their own: their weights, and the gradients by what is learned.

use burn::tensor::{Device, Tensor, TensorData};
use zoo_attention::{AttentionOptions, additive, drawn_matrix, local_predictive, multiplicative};
use zoo_conformance::*;
use zoo_oracle::{Formula, Precision, Problem, normals, solve};

use crate::named;

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
        is_refused(
            || zeros(device).apply(|q, k, v, options| additive(q, k, v, vector, options)),
            "additive attention: the vector must be [heads = 2, d_head = 4], got [2, 3]",
        );
    });
    suite.add("local-p/misuse", |device| {
        let vector = "the vector must be [heads = 2, d_head = 4], got [2, 3]";
        let matrix = "the matrix must be [heads = 2, d_head = 4, d_head = 4], got [2, 4, 3]";
        let window = "a window must be at least 1, got 0";
        for (of_vector, of_matrix, size, refused) in [
            ([2, 3], [2, 4, 4], 1, vector),
            ([2, 4], [2, 4, 3], 1, matrix),
            ([2, 4], [2, 4, 4], 0, window),
        ] {
            let learned = (
                Tensor::zeros(of_vector, device),
                Tensor::zeros(of_matrix, device),
            );
            let attend = |query, key, value, options: &AttentionOptions| {
                local_predictive(query, key, value, learned, size, options)
            };
            let message = format!("local-p attention: {refused}");
            is_refused(|| zeros(device).apply(attend), &message);
        }
    });
}

/// Two heads of three positions.
fn zeros(device: &Device) -> Tensors {
    let problem = Problem::new("zeros", [1, 2, 3, 3, 4]).with_spread(0.0);
    Tensors::of(&problem, device)
}

fn matches_the_oracle(name: &str, learned: Learned, device: &Device) {
    let problem = named(name);
    let (heads, d_head) = (problem.heads, problem.d_head);
    // So large that predicted positions are anywhere, not all in the middle.
    let vectors = normals("learned", heads * d_head, 1.0);
    let matrices = match learned {
        Learned::Multiplicative => drawn_matrix(heads, d_head),
        _ => normals("learned", heads * d_head * d_head, 0.5),
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
    must(forward.check("context", &numbers(context), &answer.context));
    if let Some(weights) = weights {
        must(forward.check("weights", &numbers(weights), &answer.weights));
    }
    let backward = Precision::F32.backward(answer.largest_score);
    must(tensors.check_gradients(&gradients, &answer, backward));
    if !answer.d_vector.is_empty() {
        // A sum over all queries and keys of what mostly cancels.
        let least = match learned {
            Learned::Additive => answer.terms.d_bias,
            _ => answer.terms.d_vector,
        };
        let by_vector = numbers(vector.grad(&gradients).expect("it is learned"));
        must(backward.check_as_large_as(least, "d_vector", &by_vector, &answer.d_vector));
    }
    if !answer.d_matrix.is_empty() {
        let by_matrix = numbers(matrix.grad(&gradients).expect("it is learned"));
        must(backward.check("d_matrix", &by_matrix, &answer.d_matrix));
    }
}
