//! One problem through one mechanism, judged by the oracle.

use burn::tensor::{DType, Device, Tensor, TensorData, s};
use zoo_attention::{
    Body, Hashing, Mechanism, MechanismConfig, RandomFeatures, drawn_matrix, drawn_vector, flash,
    which_body,
};
use zoo_oracle::{Answer, Formula, Mismatch, Parameter, Precision, Problem, Tolerance, solve_for};

use crate::tensors::{Tensors, numbers};

/// The largest error of each tensor, relative to its largest number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Errors {
    /// Of the result.
    pub context: f64,
    /// The worst of the gradients; zero where none was taken.
    pub gradients: f64,
    /// The worst of all as a share of what its tolerance allows.
    pub share: f64,
}

impl Errors {
    /// The worse of both, kind by kind.
    pub fn max(self, other: Self) -> Self {
        Self {
            context: self.context.max(other.context),
            gradients: self.gradients.max(other.gradients),
            share: self.share.max(other.share),
        }
    }
}

/// Runs `mechanism` forward on `device`, in the device's dtype, and compares the
/// result with the oracle.
pub fn check_forward(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let tensors = Tensors::of(problem, device);
    judge_forward(mechanism, problem, &tensors, &all_queries(problem))
}

/// Runs `mechanism` forward and backward on `device`, in the device's dtype, and
/// compares the result and the gradients with the oracle.
pub fn check_gradients(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let device = device.clone().autodiff();
    let tensors = Tensors::of(problem, &device);
    judge_gradients(mechanism, problem, tensors, &all_queries(problem))
}

/// Whether a mechanism takes a problem.
pub fn takes(mechanism: &MechanismConfig, problem: &Problem) -> bool {
    // How many parameters there are counts here, not which.
    let parameters = |parameter: Parameter| vec![0.0; parameter.count()];
    problem.given_to(mechanism, parameters).is_some()
}

/// What a mechanism computes of a problem with these numbers, its parameters rounded like
/// them.
///
/// Panics if it does not take it.
pub fn given(mechanism: &MechanismConfig, problem: &Problem, tensors: &Tensors) -> Problem {
    let dtype = tensors.query.dtype();
    let given = problem.given_to(mechanism, |parameter| match parameter {
        Parameter::Directions {
            count,
            seed,
            d_head,
        } => RandomFeatures::new(count, seed).directions(d_head),
        Parameter::Vector { heads, d_head } => rounded(drawn_vector(heads, d_head), dtype),
        Parameter::Matrix { heads, d_head } => rounded(drawn_matrix(heads, d_head), dtype),
        Parameter::HashDirections {
            hashing,
            seq,
            d_head,
        } => hashing.directions(seq, d_head),
        // Between two directions, `f32` may go either way: the oracle takes both.
        Parameter::Hashes { hashing, .. } => {
            let hashes = hashing.hashes(&tensors.query);
            hashes.into_iter().map(|hash| hash as f32).collect()
        }
    });
    let mut given =
        given.unwrap_or_else(|| panic!("{mechanism:?} is not for the problem {}", problem.name));
    // LibTorch's kernels forget other weights by a seed than we do.
    let is_by_aten = *mechanism == Mechanism::Flash.into() && body(tensors) == Body::Aten;
    if given.dropout.is_some() && is_by_aten {
        given.dropped = Some(dropped(tensors));
    }
    given
}

/// What computes flash attention of these tensors.
fn body(tensors: &Tensors) -> Body {
    which_body(
        &tensors.query,
        &tensors.key,
        &tensors.value,
        &tensors.options,
    )
}

/// Which weights flash attention forgets, row by row, as is seen of values that each tell
/// which key they are of.
pub fn dropped(tensors: &Tensors) -> Vec<bool> {
    let [batch, kv_heads, seq_k, _] = tensors.key.dims();
    let (device, dtype) = (tensors.key.device(), tensors.key.dtype());
    // As wide as kernels can read.
    let width = seq_k.next_multiple_of(8);
    let names = Tensor::<2>::eye(width, &device)
        .cast(dtype)
        .slice_dim(0, 0..seq_k)
        .reshape([1, 1, seq_k, width])
        .expand([batch, kv_heads, seq_k, width]);
    let weights = flash(
        tensors.query.clone(),
        tensors.key.clone(),
        names,
        &tensors.options,
    );
    let weights = weights.slice([s![..], s![..], s![..], s![..seq_k]]);
    numbers(weights)
        .into_iter()
        .map(|weight| weight == 0.0)
        .collect()
}

fn rounded(numbers: Vec<f32>, dtype: DType) -> Vec<f32> {
    let count = numbers.len();
    TensorData::new(numbers, [count])
        .convert_dtype(dtype)
        .iter::<f32>()
        .collect()
}

/// Every query of a problem, for the judges.
pub fn all_queries(problem: &Problem) -> Vec<usize> {
    (0..problem.queries()).collect()
}

/// [`check_forward`] for tensors that are there already, by the result of some
/// of the queries.
pub fn judge_forward(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: &Tensors,
    queries: &[usize],
) -> Result<Errors, Mismatch> {
    let context = tensors.attend(mechanism);
    judge_context(mechanism, problem, tensors, queries, context)
}

/// [`judge_forward`] for a result that is there already.
pub fn judge_context(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: &Tensors,
    queries: &[usize],
    context: Tensor<4>,
) -> Result<Errors, Mismatch> {
    let problem = &given(mechanism, problem, tensors);
    let answer = solve_for(problem, &tensors.inputs(), queries);
    compare_context(problem, &answer, tensors, queries, context)
}

fn compare_context(
    problem: &Problem,
    answer: &Answer,
    tensors: &Tensors,
    queries: &[usize],
    context: Tensor<4>,
) -> Result<Errors, Mismatch> {
    let tolerance = forward_tolerance(precision(tensors), problem, answer.largest_score);
    let tolerance = looser_in_half(tolerance, tensors);
    let context = rows(&numbers(context), queries, problem.d_value);
    let error = tolerance.check("context", &context, &answer.context)?;
    Ok(Errors {
        context: error,
        gradients: 0.0,
        share: error / tolerance.relative,
    })
}

/// [`check_gradients`] for tensors that are there already, on an autodiff device,
/// by the result of some of the queries and all gradients. The upstream gradient
/// of the other queries must be zero.
pub fn judge_gradients(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: Tensors,
    queries: &[usize],
) -> Result<Errors, Mismatch> {
    let problem = &given(mechanism, problem, &tensors);
    let answer = solve_for(problem, &tensors.inputs(), queries);
    let backward = precision(&tensors).backward(answer.largest_score);
    let backward = looser_in_half(backward, &tensors);
    let tracked = tensors.clone().require_grad();
    let (context, gradients) = tracked.train(mechanism);

    let mut errors = compare_context(problem, &answer, &tensors, queries, context)?;
    // A query that nothing is asked of has no gradient, but as a key.
    let mut d_query = answer.d_query_as_key;
    d_query.resize(problem.queries() * problem.d_head, 0.0);
    for (row, gradient) in queries.iter().zip(answer.d_query.chunks(problem.d_head)) {
        let own = &mut d_query[row * problem.d_head..][..problem.d_head];
        own.iter_mut()
            .zip(gradient)
            .for_each(|(d, more)| *d += more);
    }
    // A gradient by a score is a difference, and rounded like what it is the difference
    // of. Where little is left, that is judged as a thirty-second of it: 64 units of that are two
    // roundings of the largest term, and no way of computing in f32 leaves less. Where nothing may be left,
    // because a query sees one key alone, nothing is: exactly. But dropout is multiplied
    // in at two places, weights that are no softmax are divided at the end, and what is added to all scores of a query has a gradient of many
    // terms that cancel: these leave their rounding.
    const LITTLE: f64 = 1.0 / 32.0;
    let is_softmax = matches!(problem.formula, Formula::Softmax | Formula::Hashed(_));
    let inexact = problem.dropout.is_some() || !is_softmax;
    let cancels = inexact || problem.bias.is_some_and(|[.., seq_k]| seq_k == 1);
    let least = |want: &[f64], terms: f64, inexact: bool| match inexact {
        true => terms,
        false if want.iter().all(|&x| x == 0.0) => 0.0,
        false => LITTLE * terms,
    };
    let of_query = least(&d_query, answer.terms.d_query, inexact);
    let of_key = least(&answer.d_key, answer.terms.d_key, inexact);
    let of_bias = least(&answer.d_bias, answer.terms.d_bias, cancels);
    let bias = tracked.options.bias.as_ref();
    let by_bias = bias.map(|bias| ("d_bias", bias, &answer.d_bias, of_bias));
    let by_each = [
        ("d_query", &tracked.query, &d_query, of_query),
        ("d_key", &tracked.key, &answer.d_key, of_key),
        ("d_value", &tracked.value, &answer.d_value, 0.0),
    ];
    for (name, tensor, want, least) in by_each.into_iter().chain(by_bias) {
        // A tensor the result does not depend on at all may have no gradient:
        // that is a gradient of zero.
        let got = match tensor.grad(&gradients) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; want.len()],
        };
        let error = backward.check_as_large_as(least, name, &got, want)?;
        errors = errors.max(Errors {
            context: 0.0,
            gradients: error,
            share: error / backward.relative,
        });
    }
    Ok(errors)
}

/// What a result may be off by.
///
/// A mean of `n` values around zero is as small as `1/sqrt(n)`, while sums are rounded as
/// their terms are: backends that add up one after the other were seen 3.2e-6 off for one
/// query with 16,384 keys. Up to 4,096 the usual is enough.
fn forward_tolerance(precision: Precision, problem: &Problem, largest_score: f64) -> Tolerance {
    let usual = precision.forward(largest_score);
    Tolerance {
        relative: usual.relative * (problem.seq_k as f64 / 4096.0).max(1.0).sqrt(),
        ..usual
    }
}

/// What multiplies half precision as it is rounds weights and gradients by scores to it before
/// they are multiplied, as tensor cores want them: each is one more rounding on the way.
fn looser_in_half(usual: Tolerance, tensors: &Tensors) -> Tolerance {
    const ROUNDINGS: f64 = 4.0;
    let is_half = precision(tensors) != Precision::F32;
    if !is_half || !body(tensors).keeps_half() {
        return usual;
    }
    Tolerance {
        relative: usual.relative * ROUNDINGS,
        ..usual
    }
}

/// The given rows of a matrix.
fn rows(matrix: &[f32], rows: &[usize], width: usize) -> Vec<f32> {
    rows.iter()
        .flat_map(|row| &matrix[row * width..][..width])
        .copied()
        .collect()
}

/// How precisely the tensors' dtype holds numbers.
pub fn precision(tensors: &Tensors) -> Precision {
    match tensors.query.dtype() {
        DType::F16 => Precision::F16,
        DType::BF16 => Precision::Bf16,
        _ => Precision::F32,
    }
}
