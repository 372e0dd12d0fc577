//! Comparison of a mechanism with the oracle on a problem.

use std::sync::OnceLock;

use burn::tensor::{DType, Device, Gradients, Tensor, TensorData, s};
use zoo_attention::MechanismConfig;
use zoo_attention::flash::FlashKernel;
use zoo_attention::mechanisms::{
    Hashing, init_branch_gates, init_differential, init_log_decays, init_matrix, init_projection,
    init_strengths, init_table, init_vector,
};
use zoo_attention::scan::RandomFeatures;
use zoo_oracle::{
    Difference, Formula, Mask, Mismatch, Parameter, Precision, Problem, Solution, Tolerance,
    expected_kv_heads, solve, solve_for,
};

use crate::tensors::{Tensors, gradient_or_zeros, to_vec};

/// Largest errors, relative to the scale of their tensor.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Errors {
    /// Error of the context.
    pub context: f64,
    /// Largest error of the gradients; zero if there are none.
    pub gradients: f64,
    /// Largest ratio of an error to its tolerance.
    pub tolerance_ratio: f64,
}

impl Errors {
    /// Elementwise maximum.
    pub fn max(self, other: Self) -> Self {
        Self {
            context: self.context.max(other.context),
            gradients: self.gradients.max(other.gradients),
            tolerance_ratio: self.tolerance_ratio.max(other.tolerance_ratio),
        }
    }
}

/// Runs the forward pass of `mechanism` on `device`, in the device's dtype, and compares the
/// context with the oracle.
pub fn check_forward(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let tensors = Tensors::from_problem(problem, device);
    compare_forward(mechanism, problem, &tensors, &all_queries(problem))
}

/// Runs the forward and backward pass of `mechanism` on `device`, in the device's dtype, and
/// compares the context and the gradients with the oracle.
pub fn check_gradients(
    mechanism: &MechanismConfig,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let device = device.clone().autodiff();
    let tensors = Tensors::from_problem(problem, &device);
    compare_gradients(mechanism, problem, tensors, &all_queries(problem))
}

/// Whether a mechanism accepts a problem.
pub fn accepts(mechanism: &MechanismConfig, problem: &Problem) -> bool {
    // The values of the parameters do not matter.
    let parameters = |parameter: Parameter| vec![0.0; parameter.num_elements()];
    problem.with_mechanism(mechanism, parameters).is_some()
}

/// The problem for the oracle that is equivalent to `mechanism` on these tensors, with its
/// parameters rounded to their dtype.
///
/// Panics if the mechanism does not accept it.
pub fn reference_problem(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: &Tensors,
) -> Problem {
    let dtype = tensors.query.dtype();
    let reference = problem.with_mechanism(mechanism, |parameter| match parameter {
        Parameter::Directions {
            count,
            seed,
            d_head,
        } => RandomFeatures::new(count, seed).directions(d_head),
        Parameter::Sinks { heads } => vec![0.0; heads],
        Parameter::Table { heads, num_buckets } => rounded(init_table(heads, num_buckets), dtype),
        // They are not rounded, since their sums may be large.
        Parameter::LogDecays {
            batch,
            heads,
            seq,
            width,
        } => init_log_decays([batch, heads, seq, width]),
        Parameter::Strengths { batch, heads, seq } => init_strengths([batch, heads, seq, 1]),
        Parameter::BranchGates { batch, heads, seq } => init_branch_gates([batch, heads, seq, 3]),
        Parameter::Differential { half } => rounded(init_differential(half), dtype),
        Parameter::Projections { rank, length } => rounded(init_projection(rank, length), dtype),
        Parameter::Vector { heads, d_head } => rounded(init_vector(heads, d_head), dtype),
        Parameter::Matrix { heads, d_head } => rounded(init_matrix(heads, d_head), dtype),
        Parameter::HashDirections {
            hashing,
            seq,
            d_head,
        } => hashing.directions(seq, d_head),
        // Between two directions, `f32` may choose either: the oracle accepts both.
        Parameter::Hashes { hashing, .. } => {
            let hashes = hashing.hashes(&tensors.query);
            hashes.into_iter().map(|hash| hash as f32).collect()
        }
    });
    let mut reference =
        reference.unwrap_or_else(|| panic!("{mechanism:?} does not accept {}", problem.name));
    // LibTorch's kernels have their own random generator.
    let is_softmax = match reference.formula {
        Formula::Softmax
        | Formula::Sink(_)
        | Formula::Relative(_)
        | Formula::Forgetting(_)
        | Formula::Differential { .. } => true,
        Formula::Additive(_)
        | Formula::Multiplicative(_)
        | Formula::LocalPredictive { .. }
        | Formula::Argmax
        | Formula::Sampled { .. }
        | Formula::Sigmoid(_)
        | Formula::Linear(_)
        | Formula::Lsh(_)
        | Formula::BlockSelection(_)
        | Formula::NativeSparse(_)
        | Formula::Retention(_)
        | Formula::Gated(_)
        | Formula::Nystrom { .. }
        | Formula::Linformer(_) => false,
    };
    let is_aten = is_softmax && tensors.kernel() == FlashKernel::Aten;
    if reference.dropout.is_some() && is_aten {
        reference.dropout_mask = Some(dropout_mask(mechanism, tensors));
    }
    reference
}

/// The weights that a mechanism with a softmax drops or masks, `[batch, heads, seq_q, seq_k]`. With
/// one-hot values, the context is the weights.
pub fn dropout_mask(mechanism: &MechanismConfig, tensors: &Tensors) -> Vec<bool> {
    let [batch, kv_heads, seq_k, _] = tensors.key.dims();
    let (device, dtype) = (tensors.key.device(), tensors.key.dtype());
    // Kernels read vectors of up to 8 elements.
    let width = seq_k.next_multiple_of(8);
    let one_hot = Tensor::<2>::eye(width, &device)
        .cast(dtype)
        .slice_dim(0, 0..seq_k)
        .reshape([1, 1, seq_k, width])
        .expand([batch, kv_heads, seq_k, width]);
    let one_hot = Tensors {
        value: one_hot,
        ..tensors.clone()
    };
    let weights = one_hot.attend(mechanism);
    let weights = weights.slice([s![..], s![..], s![..], s![..seq_k]]);
    to_vec(weights)
        .into_iter()
        .map(|weight| weight == 0.0)
        .collect()
}

fn rounded(values: Vec<f32>, dtype: DType) -> Vec<f32> {
    let count = values.len();
    TensorData::new(values, [count])
        .convert_dtype(dtype)
        .iter::<f32>()
        .collect()
}

/// Indices of all queries of a problem.
pub fn all_queries(problem: &Problem) -> Vec<usize> {
    (0..problem.queries()).collect()
}

/// [`check_forward`] with given tensors, for some of the queries.
pub fn compare_forward(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: &Tensors,
    queries: &[usize],
) -> Result<Errors, Mismatch> {
    let context = tensors.attend(mechanism);
    compare_context(mechanism, problem, tensors, queries, context)
}

/// [`compare_forward`] with a given context.
pub fn compare_context(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: &Tensors,
    queries: &[usize],
    context: Tensor<4>,
) -> Result<Errors, Mismatch> {
    let problem = &reference_problem(mechanism, problem, tensors);
    let solution = solve_for(problem, &tensors.inputs(), queries);
    let limits = Limits::of_mechanisms(problem, tensors, solution.largest_score);
    limits.check_context(problem, &solution, queries, context)
}

/// [`check_gradients`] with given tensors on an autodiff device, for the context of some of the
/// queries and all gradients. The output gradient of the other queries must be zero.
pub fn compare_gradients(
    mechanism: &MechanismConfig,
    problem: &Problem,
    tensors: Tensors,
    queries: &[usize],
) -> Result<Errors, Mismatch> {
    let problem = &reference_problem(mechanism, problem, &tensors);
    let solution = solve_for(problem, &tensors.inputs(), queries);
    let limits = Limits::of_mechanisms(problem, &tensors, solution.largest_score);
    let tracked = tensors.require_grad();
    let (context, gradients) = tracked.forward_backward(mechanism);
    let errors = limits.check_context(problem, &solution, queries, context)?;
    let of_gradients = limits.check_gradients(problem, solution, &tracked, queries, &gradients)?;
    Ok(errors.max(of_gradients))
}

/// Compares softmax attention of another library with the oracle: the context of some of the queries,
/// and all gradients if `gradients` are given, which are those of `tensors`. Errors may be up to
/// `limit`, which detects different functions rather than inexact ones.
pub fn compare_library(
    problem: &Problem,
    tensors: &Tensors,
    queries: &[usize],
    limit: f64,
    context: Tensor<4>,
    gradients: Option<&Gradients>,
) -> Result<Errors, Mismatch> {
    let solution = solve_for(problem, &tensors.inputs(), queries);
    let limits = Limits::fixed(limit, tensors);
    let errors = limits.check_context(problem, &solution, queries, context)?;
    let Some(gradients) = gradients else {
        return Ok(errors);
    };
    let of_gradients = limits.check_gradients(problem, solution, tensors, queries, gradients)?;
    Ok(errors.max(of_gradients))
}

/// Tolerances of a comparison.
struct Limits {
    context: Tolerance,
    gradients: Tolerance,
    /// Whether a gradient that is zero for every input must be exactly zero.
    exact_zeros: bool,
}

impl Limits {
    fn of_mechanisms(problem: &Problem, tensors: &Tensors, largest_score: f64) -> Self {
        let precision = precision(tensors);
        let context = forward_tolerance(precision, problem, largest_score);
        let is_softmax = matches!(problem.formula, Formula::Softmax | Formula::Lsh(_));
        Self {
            context: looser_in_half(context, tensors),
            gradients: looser_in_half(precision.backward(largest_score), tensors),
            // Dropout is multiplied in at two points, and formulas other than softmax are normalised
            // at the end, which leaves a rounding error.
            exact_zeros: problem.dropout.is_none() && is_softmax,
        }
    }

    fn fixed(relative: f64, tensors: &Tensors) -> Self {
        let default = precision(tensors);
        let [context, gradients] =
            [default.forward(1.0), default.backward(1.0)].map(|tolerance| Tolerance {
                relative,
                ..tolerance
            });
        Self {
            context,
            gradients,
            exact_zeros: false,
        }
    }

    fn check_context(
        &self,
        problem: &Problem,
        solution: &Solution,
        queries: &[usize],
        context: Tensor<4>,
    ) -> Result<Errors, Mismatch> {
        let context = rows(&to_vec(context), queries, problem.d_value);
        let error = self.context.check("context", &context, &solution.context)?;
        Ok(Errors {
            context: error,
            gradients: 0.0,
            tolerance_ratio: error / self.context.relative,
        })
    }

    fn check_gradients(
        &self,
        problem: &Problem,
        solution: Solution,
        tracked: &Tensors,
        queries: &[usize],
        gradients: &Gradients,
    ) -> Result<Errors, Mismatch> {
        // Queries without output gradient have a gradient only as keys.
        let mut d_query = solution.d_query_as_key;
        d_query.resize(problem.queries() * problem.d_head, 0.0);
        for (row, gradient) in queries.iter().zip(solution.d_query.chunks(problem.d_head)) {
            let own = &mut d_query[row * problem.d_head..][..problem.d_head];
            own.iter_mut().zip(gradient).for_each(|(sum, d)| *sum += d);
        }
        // The gradient of a score is a difference of terms and is rounded like them. If they almost
        // cancel, the scale is at least a thirty-second of the largest term: 64 units of that are two
        // rounding errors of it, which is the minimum in f32. If they cancel completely, because a
        // query has one visible key, the gradient is exactly zero. An exception is a bias that is
        // broadcast over the keys, whose gradient is a sum of many terms that cancel.
        const MIN_SCALE: f64 = 1.0 / 32.0;
        let cancels = problem.bias.is_some_and(|[.., seq_k]| seq_k == 1);
        let min_scale = |want: &[f64], terms: f64, exact_zeros: bool| {
            if !exact_zeros {
                terms
            } else if want.iter().all(|&x| x == 0.0) {
                0.0
            } else {
                MIN_SCALE * terms
            }
        };
        let (exact, terms) = (self.exact_zeros, &solution.terms);
        let query_scale = min_scale(&d_query, terms.d_query, exact);
        let key_scale = min_scale(&solution.d_key, terms.d_key, exact);
        let bias_scale = min_scale(&solution.d_bias, terms.d_bias, exact && !cancels);
        let bias = tracked.options.bias.as_ref();
        let d_bias = bias.map(|bias| ("d_bias", bias, &solution.d_bias, bias_scale));
        let inputs = [
            ("d_query", &tracked.query, &d_query, query_scale),
            ("d_key", &tracked.key, &solution.d_key, key_scale),
            ("d_value", &tracked.value, &solution.d_value, 0.0),
        ];
        let mut errors = Errors::default();
        for (name, tensor, want, min_scale) in inputs.into_iter().chain(d_bias) {
            let got = gradient_or_zeros(tensor, gradients);
            let tolerance = self.gradients;
            let error = tolerance.check_with_min_scale(min_scale, name, &got, want)?;
            errors.gradients = errors.gradients.max(error);
            errors.tolerance_ratio = errors.tolerance_ratio.max(error / tolerance.relative);
        }
        Ok(errors)
    }
}

/// Tolerance of the context.
///
/// A mean of `n` values around zero is about `1/sqrt(n)`, while its sum is rounded like its terms:
/// backends that sum sequentially had an error of 3.2e-6 for a query with 16,384 keys. Up to 4,096
/// keys the default tolerance is sufficient.
///
/// The context of `differential` is a difference of two such means, whose errors add up.
pub fn forward_tolerance(precision: Precision, problem: &Problem, largest_score: f64) -> Tolerance {
    let default = precision.forward(largest_score);
    let is_difference = matches!(problem.formula, Formula::Differential { .. });
    let terms = if is_difference { 2.0 } else { 1.0 };
    Tolerance {
        relative: default.relative * terms * (problem.seq_k as f64 / 4096.0).max(1.0).sqrt(),
        ..default
    }
}

/// Tolerance of kernels that multiply in half precision: they also round weights and gradients of
/// scores for the tensor cores.
fn looser_in_half(default: Tolerance, tensors: &Tensors) -> Tolerance {
    const ROUNDINGS: f64 = 4.0;
    let is_half = matches!(tensors.query.dtype(), DType::F16 | DType::BF16);
    if !is_half || !tensors.kernel().supports_half() {
        return default;
    }
    Tolerance {
        relative: default.relative * ROUNDINGS,
        ..default
    }
}

/// Selects rows of a matrix.
fn rows(matrix: &[f32], rows: &[usize], width: usize) -> Vec<f32> {
    rows.iter()
        .flat_map(|row| &matrix[row * width..][..width])
        .copied()
        .collect()
}

/// Precision of the tensors' dtype.
pub fn precision(tensors: &Tensors) -> Precision {
    match tensors.query.dtype() {
        DType::F16 => Precision::F16,
        DType::BF16 => Precision::Bf16,
        _ => Precision::F32,
    }
}

/// Precision of Burn's matmuls in `f32` on the device of this process. On `cuda` they round their
/// operands to TF32, and no option disables that. Mechanisms and layers do not use them, but tests
/// that compare with Burn's modules do.
pub(crate) fn f32_precision(device: &Device) -> Precision {
    static PRECISION: OnceLock<Precision> = OnceLock::new();
    *PRECISION.get_or_init(|| {
        const SIZE: usize = 64;
        // In TF32 this is 1.
        let element = 1.0 + 1.0 / f32::from(1u16 << 13);
        let left = TensorData::new(vec![element; SIZE * SIZE], [SIZE, SIZE]);
        let left = Tensor::<2>::from_data(left, (device, DType::F32));
        let ones = Tensor::<2>::ones([SIZE, SIZE], (device, DType::F32));
        let sum = to_vec(left.matmul(ones))[0];
        if sum == SIZE as f32 {
            Precision::Tf32
        } else {
            Precision::F32
        }
    })
}

/// Checks that a mechanism differs from full attention with these sizes and mask as [`Difference`]
/// says, by the oracle's weights for random queries and keys: it masks a key that `mask` does not,
/// or has other weights. A test at sizes where this fails would only test full attention.
#[track_caller]
pub fn assert_not_full_attention(
    mechanism: &MechanismConfig,
    heads: usize,
    [seq_q, seq_k]: [usize; 2],
    mask: Mask,
    device: &Device,
) {
    let kv_heads = expected_kv_heads(mechanism, heads).unwrap_or(heads);
    let problem = Problem::new("differs from full attention", [2, heads, seq_q, seq_k, 8])
        .with_kv_heads(kv_heads)
        .with_mask(mask);
    let case = format!("{mechanism:?} with {heads} heads, {seq_q} queries and {seq_k} keys");
    let difference = Difference::from(mechanism.mechanism());
    match difference {
        Difference::None => return,
        Difference::SharedHeads => {
            assert!(kv_heads < heads, "{case}: no KV head is shared");
            return;
        }
        Difference::MaskedKeys | Difference::Weights => {}
    }
    let inputs = problem.inputs();
    let tensors = Tensors::new(&problem, &inputs, device);
    let reference = reference_problem(mechanism, &problem, &tensors);
    let [own, full] = [&reference, &problem].map(|problem| solve(problem, &inputs).weights);
    /// Far above rounding errors.
    const MIN_DIFFERENCE: f64 = 0.05;
    let pairs = || own.iter().zip(&full).enumerate();
    let is_different = match difference {
        // The own position does not count: `lsh` masks it at any size.
        Difference::MaskedKeys => pairs().any(|(index, (own, full))| {
            let (i, j) = (index / seq_k % seq_q, index % seq_k);
            *own == 0.0 && *full > 0.0 && i + seq_k != j + seq_q
        }),
        _ => pairs().any(|(_, (own, full))| (own - full).abs() > MIN_DIFFERENCE),
    };
    assert!(is_different, "{case}: equal to full attention");
    let has_several_keys = |row: &[f64]| row.iter().filter(|weight| **weight != 0.0).count() > 1;
    let attends = own.chunks(seq_k).any(has_several_keys);
    let is_valid = attends || difference != Difference::MaskedKeys;
    assert!(is_valid, "{case}: no query attends to two keys");
}
