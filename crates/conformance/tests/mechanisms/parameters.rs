//! Mechanisms with parameters: attention weights and gradients of the parameters.

use zoo_attention::RelativeBuckets;
use zoo_attention::flash::{FlashKernel, flash, flash_with_sink};
use zoo_attention::mechanisms::additive::{additive, additive_with_weights};
use zoo_attention::mechanisms::delta::delta_rule;
use zoo_attention::mechanisms::differential::{differential, lambda};
use zoo_attention::mechanisms::forgetting::forgetting;
use zoo_attention::mechanisms::gla::gated_linear;
use zoo_attention::mechanisms::linformer::linformer;
use zoo_attention::mechanisms::local_p::{local_predictive, local_predictive_with_weights};
use zoo_attention::mechanisms::multiplicative::multiplicative;
use zoo_attention::mechanisms::native_sparse::native_sparse;
use zoo_attention::mechanisms::{NativeSparse, init_matrix};
use zoo_oracle::{GatedBranches, GatedRecurrence, Precision, Projections, RelativeTable, normals};

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
    for &(name, parameter) in OTHER_PROBLEMS {
        let trial = format!("{}/{name}/parameter-gradient", parameter.mechanism());
        suite.add_training(trial, move |device| check_other(name, parameter, device));
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

/// A parameter that is not a vector or matrix for each head.
#[derive(Clone, Copy)]
enum Other {
    Sinks,
    LogDecays,
    Table,
    Differential,
    /// Decays of a head, and strengths.
    Recurrence,
    /// Decays of each row of the state.
    RecurrenceByRow,
    /// Strengths of a delta rule.
    Delta,
    /// Its decays of each row of the state, and strengths.
    DeltaByRow,
    /// Projections along the sequence.
    Projections,
    /// Gates of branches.
    BranchGates,
}

/// Options, shared heads, more keys and more queries, fully masked rows, several tiles.
const OTHER_PROBLEMS: &[(&str, Other)] = &[
    ("odd", Other::Sinks),
    ("causal-more-queries", Other::Sinks),
    ("everything", Other::Sinks),
    ("causal-more-keys", Other::LogDecays),
    ("causal-more-queries", Other::LogDecays),
    ("everything", Other::LogDecays),
    ("gpt2", Other::LogDecays),
    ("odd", Other::Table),
    ("causal-more-queries", Other::Table),
    ("everything", Other::Table),
    ("causal-more-queries", Other::Differential),
    ("everything", Other::Differential),
    ("multi-query", Other::Differential),
    ("causal-more-queries", Other::Recurrence),
    ("several-tiles", Other::Recurrence),
    ("causal-and-lengths", Other::RecurrenceByRow),
    ("several-tiles", Other::RecurrenceByRow),
    ("several-tiles", Other::Delta),
    ("grouped-heads", Other::DeltaByRow),
    ("several-tiles", Other::DeltaByRow),
    ("causal-more-keys", Other::BranchGates),
    ("causal-and-lengths", Other::BranchGates),
    ("key-padding", Other::BranchGates),
    ("grouped-heads", Other::BranchGates),
    ("odd", Other::Projections),
    ("key-padding", Other::Projections),
    ("translate-cross", Other::Projections),
];

impl Other {
    fn mechanism(self) -> Mechanism {
        match self {
            Self::Sinks => Mechanism::Sink,
            Self::LogDecays => Mechanism::Forgetting,
            Self::Table => Mechanism::Relative,
            Self::Differential => Mechanism::Differential,
            Self::Recurrence => Mechanism::Mamba2,
            Self::RecurrenceByRow => Mechanism::Gla,
            Self::Delta => Mechanism::Delta,
            Self::DeltaByRow => Mechanism::Kda,
            Self::Projections => Mechanism::Linformer,
            Self::BranchGates => Mechanism::NativeSparse,
        }
    }

    /// Decays of a head at a position, whether there are strengths, and whether it is a delta rule.
    fn recurrence(self, d_head: usize) -> Option<(usize, bool, bool)> {
        match self {
            Self::Recurrence => Some((1, true, false)),
            Self::RecurrenceByRow => Some((d_head, false, false)),
            Self::Delta => Some((0, true, true)),
            Self::DeltaByRow => Some((d_head, true, true)),
            Self::Sinks
            | Self::LogDecays
            | Self::Table
            | Self::Differential
            | Self::Projections
            | Self::BranchGates => None,
        }
    }
}

/// Compares the gradient of the parameter, and those of the inputs, for values other than the initial
/// ones.
fn check_other(name: &str, parameter: Other, device: &Device) {
    const LAMBDA_INIT: f64 = 0.4;
    let buckets = RelativeBuckets {
        num_buckets: 9,
        max_distance: 50,
        is_bidirectional: true,
    };
    let sparse = NativeSparse {
        block_size: 3,
        top_k: 3,
        window: 2,
    };
    let problem = find_problem(name);
    let (batch, heads, seq_k) = (problem.batch, problem.heads, problem.seq_k);
    let half = problem.d_head / 2;
    let learned = |count: usize, std: f64| normals("learned", count, std);
    let positions = batch * problem.kv_heads * seq_k;
    let recurrence = parameter.recurrence(problem.d_head);
    let (decays, strengths) = match recurrence {
        Some((width, has_strength, _)) => {
            (positions * width, positions * usize::from(has_strength))
        }
        None => (0, 0),
    };
    let (dims, values) = match parameter {
        Other::Recurrence | Other::RecurrenceByRow | Other::Delta | Other::DeltaByRow => {
            let logits = learned(decays + strengths, 1.0);
            let value = |(i, x): (usize, &f32)| match i < decays {
                true => -(-1.0 - x).exp().ln_1p() / 8.0,
                false => 1.0 / (1.0 + (-x).exp()),
            };
            (vec![], logits.iter().enumerate().map(value).collect())
        }
        Other::Sinks => (vec![heads], learned(heads, 2.0)),
        Other::LogDecays => {
            let logits = learned(batch * heads * seq_k, 1.0);
            let log_sigmoid = |x: &f32| -(-1.0 - x).exp().ln_1p();
            let values = logits.iter().map(log_sigmoid).collect();
            (vec![batch, heads, seq_k], values)
        }
        Other::Table => (vec![heads, 9], learned(heads * 9, 1.0)),
        Other::Differential => (vec![4, half], learned(4 * half, 0.3)),
        Other::Projections => {
            let (rank, length) = (5, seq_k + 3);
            let values = learned(2 * rank * length, (seq_k as f64).powf(-0.5));
            (vec![2, rank, length], values)
        }
        Other::BranchGates => {
            let logits = learned(batch * heads * seq_k * 3, 1.0);
            let values = logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
            (vec![batch, heads, seq_k, 3], values)
        }
    };
    let formula = match parameter {
        Other::Recurrence | Other::RecurrenceByRow | Other::Delta | Other::DeltaByRow => {
            Formula::Gated(GatedRecurrence {
                log_decays: values[..decays].to_vec(),
                strengths: values[decays..].to_vec(),
                is_delta: recurrence.is_some_and(|(.., is_delta)| is_delta),
            })
        }
        Other::Sinks => Formula::Sink(values.clone()),
        Other::LogDecays => Formula::Forgetting(values.clone()),
        Other::Table => Formula::Relative(RelativeTable {
            values: values.clone(),
            num_buckets: buckets.num_buckets,
            max_distance: buckets.max_distance,
            bidirectional: true,
        }),
        Other::Differential => Formula::Differential {
            vectors: values.clone(),
            lambda_init: LAMBDA_INIT,
        },
        Other::Projections => Formula::Linformer(Projections {
            rank: dims[1],
            length: dims[2],
            values: values.clone(),
        }),
        Other::BranchGates => Formula::NativeSparse(GatedBranches {
            block_size: sparse.block_size,
            top_k: sparse.top_k,
            window: sparse.window,
            gates: values.clone(),
        }),
    };
    let mut problem = problem.with_formula(formula);
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    if problem.dropout.is_some() && tensors.kernel() == FlashKernel::Aten {
        problem.dropout_mask = Some(dropout_mask(&Mechanism::Flash.into(), &tensors));
    }
    let flat: Tensor<1> = tensor_of(values.clone(), [values.len()], device);
    let flat = flat.require_grad();
    let gate = |range: std::ops::Range<usize>| {
        let dims = [batch, problem.kv_heads, seq_k, range.len() / positions];
        let is_some = !range.is_empty();
        is_some.then(|| flat.clone().slice_dim(0, range).reshape(dims))
    };
    let context = tensors.apply(|query, key, value, options| match parameter {
        Other::Recurrence | Other::RecurrenceByRow => {
            let log_decay = gate(0..decays).expect("decays");
            let strength = gate(decays..values.len());
            gated_linear(query, key, value, log_decay, strength, options)
        }
        Other::Delta | Other::DeltaByRow => {
            let strength = gate(decays..values.len()).expect("strengths");
            delta_rule(query, key, value, gate(0..decays), strength, options)
        }
        Other::Sinks => flash_with_sink(query, key, value, flat.clone(), options),
        Other::LogDecays => {
            let gates = flat.clone().reshape([dims[0], dims[1], dims[2]]);
            forgetting(query, key, value, gates, options)
        }
        Other::Table => {
            let table = flat.clone().reshape([dims[0], dims[1]]);
            let bias = buckets.bias(table, problem.seq_q, seq_k);
            let options = options.clone().with_relative_bias(bias);
            flash(query, key, value, &options)
        }
        Other::Differential => {
            let vectors = flat.clone().reshape([dims[0], dims[1]]);
            let lambda = lambda(vectors, LAMBDA_INIT);
            differential(query, key, value, lambda, options)
        }
        Other::Projections => {
            let projections = flat.clone().reshape([dims[0], dims[1], dims[2]]);
            linformer(query, key, value, projections, options)
        }
        Other::BranchGates => {
            let gates = flat.clone().reshape([dims[0], dims[1], dims[2], dims[3]]);
            native_sparse(query, key, value, gates, &sparse, options)
        }
    });
    let gradients = tensors.backward(context.clone());

    let solution = solve(&problem, &inputs);
    let forward = Precision::F32.forward(solution.largest_score);
    must(forward.check("context", &to_vec(context), &solution.context));
    let backward = Precision::F32.backward(solution.largest_score);
    must(tensors.check_gradients(&gradients, &solution, backward));
    // A sum over queries and keys whose terms mostly cancel.
    let min_scale = solution
        .terms
        .d_bias
        .max(solution.terms.d_parameter / values.len() as f64);
    let got = to_vec(flat.grad(&gradients).expect("a gradient"));
    must(backward.check_with_min_scale(min_scale, "d_parameter", &got, &solution.d_parameter));
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
