//! Mechanisms with parameters: attention weights and gradients of the parameters.

use zoo_attention::mechanisms::additive::{additive, additive_with_weights};
use zoo_attention::mechanisms::init_matrix;
use zoo_attention::mechanisms::local_p::{local_predictive, local_predictive_with_weights};
use zoo_attention::mechanisms::multiplicative::multiplicative;
use zoo_oracle::{Precision, normals};

use crate::prelude::*;

#[derive(Clone, Copy)]
enum Parameters {
    /// A vector for each head.
    Additive,
    /// A matrix for each head.
    Multiplicative,
    /// Both, with this window.
    Predictive(usize),
}

/// Options, shared heads, more keys and more queries, lengths and padding, fully masked rows,
/// several tiles.
const PROBLEMS: &[(&str, Parameters)] = &[
    ("one", Parameters::Additive),
    ("odd", Parameters::Additive),
    ("causal-more-queries", Parameters::Additive),
    ("dense-mask", Parameters::Additive),
    ("everything", Parameters::Additive),
    ("multi-query", Parameters::Additive),
    ("translate-cross", Parameters::Additive),
    ("odd", Parameters::Multiplicative),
    ("multi-query", Parameters::Multiplicative),
    ("one", Parameters::Predictive(1)),
    ("odd", Parameters::Predictive(3)),
    ("causal-more-queries", Parameters::Predictive(2)),
    ("key-lengths", Parameters::Predictive(2)),
    ("key-padding", Parameters::Predictive(1)),
    ("dense-mask", Parameters::Predictive(2)),
    ("everything", Parameters::Predictive(25)),
    ("multi-query", Parameters::Predictive(3)),
    ("translate-cross", Parameters::Predictive(10)),
];

pub(crate) fn trials(suite: &mut Suite) {
    for &(name, parameters) in PROBLEMS {
        let trial = match parameters {
            Parameters::Additive => format!("additive/{name}/vector-gradient"),
            Parameters::Multiplicative => format!("multiplicative/{name}/matrix-gradient"),
            Parameters::Predictive(_) => format!("local-p/{name}/parameter-gradients"),
        };
        suite.add_training(trial, move |device| {
            check_parameters(name, parameters, device)
        });
    }
    suite.add("additive/invalid/vector-of-wrong-size", |device| {
        let vector = Tensor::<2>::zeros([2, 3], device);
        assert_panics_with(
            || zeros(device).apply(|q, k, v, options| additive(q, k, v, vector, options)),
            "additive attention: the vector must be [heads = 2, d_head = 4], got [2, 3]",
        );
    });
    suite.add("local-p/invalid", |device| {
        let vector = "the vector must be [heads = 2, d_head = 4], got [2, 3]";
        let matrix = "the matrix must be [heads = 2, d_head = 4, d_head = 4], got [2, 4, 3]";
        let window = "a window must be at least 1, got 0";
        for (vector_shape, matrix_shape, size, message) in [
            ([2, 3], [2, 4, 4], 1, vector),
            ([2, 4], [2, 4, 3], 1, matrix),
            ([2, 4], [2, 4, 4], 0, window),
        ] {
            let parameters = (
                Tensor::zeros(vector_shape, device),
                Tensor::zeros(matrix_shape, device),
            );
            let attend = |query, key, value, options: &AttentionOptions| {
                local_predictive(query, key, value, parameters, size, options)
            };
            let message = format!("local-p attention: {message}");
            assert_panics_with(|| zeros(device).apply(attend), &message);
        }
    });
}

fn zeros(device: &Device) -> Tensors {
    let problem = Problem::new("zeros", [1, 2, 3, 3, 4]).with_std(0.0);
    Tensors::from_problem(&problem, device)
}

fn check_parameters(name: &str, parameters: Parameters, device: &Device) {
    let problem = find_problem(name);
    let (heads, d_head) = (problem.heads, problem.d_head);
    // Large enough that predicted positions are not all in the middle.
    let vectors = normals("learned", heads * d_head, 1.0);
    let matrices = match parameters {
        Parameters::Multiplicative => init_matrix(heads, d_head),
        _ => normals("learned", heads * d_head * d_head, 0.5),
    };
    let vector: Tensor<2> = tensor_of(vectors.clone(), [heads, d_head], device);
    let matrix: Tensor<3> = tensor_of(matrices.clone(), [heads, d_head, d_head], device);
    let (vector, matrix) = (vector.require_grad(), matrix.require_grad());
    let problem = problem.with_formula(match parameters {
        Parameters::Additive => Formula::Additive(vectors),
        Parameters::Multiplicative => Formula::Multiplicative(matrices),
        Parameters::Predictive(window) => Formula::LocalPredictive {
            vectors,
            matrices,
            window,
        },
    });
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let both = || (vector.clone(), matrix.clone());
    let context = tensors.apply(|query, key, value, options| match parameters {
        Parameters::Additive => additive(query, key, value, vector.clone(), options),
        Parameters::Multiplicative => multiplicative(query, key, value, matrix.clone(), options),
        Parameters::Predictive(window) => {
            local_predictive(query, key, value, both(), window, options)
        }
    });
    let gradients = tensors.backward(context.clone());

    let solution = solve(&problem, &inputs);
    let forward = Precision::F32.forward(solution.largest_score);
    must(forward.check("context", &to_vec(context), &solution.context));
    if let Parameters::Additive = parameters {
        let output = tensors.apply(|query, key, value, options| {
            additive_with_weights(query, key, value, vector.clone(), options)
        });
        must(forward.check("weights", &to_vec(output.into_weights()), &solution.weights));
    }
    if let Parameters::Predictive(window) = parameters {
        let output = tensors.apply(|query, key, value, options| {
            local_predictive_with_weights(query, key, value, both(), window, options)
        });
        must(forward.check("weights", &to_vec(output.into_weights()), &solution.weights));
    }
    let backward = Precision::F32.backward(solution.largest_score);
    must(tensors.check_gradients(&gradients, &solution, backward));
    if !solution.d_vector.is_empty() {
        // A sum over all queries and keys whose terms mostly cancel.
        let min_scale = match parameters {
            Parameters::Additive => solution.terms.d_bias,
            _ => solution.terms.d_vector,
        };
        let d_vector = to_vec(vector.grad(&gradients).expect("a gradient"));
        must(backward.check_with_min_scale(min_scale, "d_vector", &d_vector, &solution.d_vector));
    }
    if !solution.d_matrix.is_empty() {
        let d_matrix = to_vec(matrix.grad(&gradients).expect("a gradient"));
        must(backward.check("d_matrix", &d_matrix, &solution.d_matrix));
    }
}
