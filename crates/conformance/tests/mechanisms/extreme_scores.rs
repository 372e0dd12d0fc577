//! Large negative biases as masks, and very large scores.
//!
//! A bias of -1e9 masks a key, unless all keys of a row have it. Such a row must not affect the
//! gradients of other rows, which share its keys and values.

use crate::prelude::*;
use crate::{half_types, other_mechanisms};

/// Common mask constants: literals, those of Hugging Face models, and the minima of data types.
const CONSTANTS: [(&str, f32); 7] = [
    ("1e4", -1e4),
    ("f16-min", -65_504.0),
    ("1e9", -1e9),
    ("1e30", -1e30),
    ("bf16-min", -3.389_531_4e38),
    ("f32-min", f32::MIN),
    ("infinity", f32::NEG_INFINITY),
];

/// Approximate size of the largest scores.
const SCORES: [(&str, f64); 3] = [("1e3", 1e3), ("1e6", 1e6), ("1e10", 1e10)];

/// The row of each head in which all keys have the constant.
const CONSTANT_ROW: usize = 70;

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    let grads = [("without-grad", false), ("with-grad", true)];
    for (name, mechanism) in other_mechanisms::with_softmax() {
        let is_full = Difference::from(mechanism.mechanism()) == Difference::None;
        // The argmax is discontinuous in the scores, which a large bias rounds.
        let is_hard = mechanism.mechanism() == Mechanism::Hard;
        let problem = biased_problem(&mechanism).filter(|_| !is_hard);
        for (constant_name, constant) in CONSTANTS {
            for (grad, has_grad) in grads {
                // Two constants are sufficient for the others.
                let is_tested = ["1e9", "f32-min"].contains(&constant_name) && !has_grad;
                let Some(problem) = problem.clone().filter(|_| is_full || is_tested) else {
                    continue;
                };
                let name = format!("{name}/bias-mask/{constant_name}/{grad}");
                suite.add_training(name, move |device| {
                    check_bias_mask(&mechanism, &problem, constant, has_grad, device);
                });
            }
        }
    }
    for (dtype_name, dtype) in half_types(opened) {
        for d_head in [16, 64] {
            for (mask_name, mask) in [("full", None), ("causal", Some(Mask::Causal))] {
                let problem = Problem::new("growing", [1, 2, 300, 300, d_head]);
                let problem = match mask {
                    Some(mask) => problem.with_mask(mask),
                    None => problem,
                };
                let name = format!("flash/growing-scores/{mask_name}-{d_head}/{dtype_name}");
                suite.add_training(name, move |device| {
                    check_growing_scores(&problem, dtype, device);
                });
            }
        }
    }
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        for (name, size) in SCORES {
            for seq_q in [150, 5] {
                let name = format!("{mechanism}/large-scores/{name}/queries-{seq_q}");
                suite.add_training(name, move |device| {
                    check_large_scores(&mechanism.into(), size, seq_q, device);
                });
            }
        }
    }
}

/// Each tile of keys has larger scores than the previous ones, so that weights relative to the maximum
/// of the first tile would overflow in half precision.
fn check_growing_scores(problem: &Problem, dtype: DType, device: &Device) {
    let mut inputs = problem.inputs();
    for (row, key) in inputs.key.chunks_mut(problem.d_head).enumerate() {
        let factor = (row % problem.seq_k) as f32 / 8.0;
        key.iter_mut().for_each(|element| *element *= factor);
    }
    let tensors = Tensors::new(problem, &inputs, device).cast(dtype);
    let flash = Mechanism::Flash.into();
    must(compare_gradients(
        &flash,
        problem,
        tensors,
        &all_queries(problem),
    ));
}

/// A problem of several tiles with a bias; none if the mechanism does not support it.
fn biased_problem(mechanism: &MechanismConfig) -> Option<Problem> {
    let problem = Problem::new("masked", [1, 4, SEQ_Q, SEQ_K, 16]);
    other_mechanisms::with_heads_of(mechanism, problem.with_bias([1, 4, SEQ_Q, SEQ_K]))
}

const SEQ_Q: usize = 130;
const SEQ_K: usize = 200;

/// Every third key of each row has the constant as its bias, and all keys of one row have it.
/// `has_grad` says whether that row has an output gradient.
fn check_bias_mask(
    mechanism: &MechanismConfig,
    problem: &Problem,
    constant: f32,
    has_grad: bool,
    device: &Device,
) {
    let mut inputs = problem.inputs();
    let is_constant = |row: usize| row % problem.seq_q == CONSTANT_ROW;
    for (row, bias) in inputs.bias.chunks_mut(problem.seq_k).enumerate() {
        for (key, bias) in bias.iter_mut().enumerate() {
            if is_constant(row) || (row + key) % 3 == 0 {
                *bias = constant;
            }
        }
    }
    if !has_grad {
        let output_grad = inputs.output_grad.chunks_mut(problem.d_value);
        let constant_rows = output_grad.enumerate().filter(|(row, _)| is_constant(*row));
        constant_rows.for_each(|(_, row)| row.fill(0.0));
    }

    let tensors = Tensors::new(problem, &inputs, device);
    let problem = &reference_problem(mechanism, problem, &tensors);
    let solution = solve(problem, &inputs);
    let bias = tensors.options.bias.clone();
    let mut tensors = tensors.require_grad();
    if !has_grad {
        // Some backends use other kernels if the bias has a gradient.
        tensors.options.bias = bias;
    }
    let (context, gradients) = tensors.forward_backward(mechanism);
    let context = to_vec(context);

    // Keys with the constant have no weight in rows with other keys, whose scores determine the
    // tolerance.
    let remove_constant = |&b: &f32| if b == constant { 0.0 } else { b };
    let ordinary = Inputs {
        bias: inputs.bias.iter().map(remove_constant).collect(),
        ..inputs.clone()
    };
    let ordinary = solve(problem, &ordinary).largest_score;
    let constant_size = f64::from(constant.abs());
    let max_value = inputs.value.iter().fold(0f32, |max, x| max.max(x.abs()));
    let width = problem.d_value;
    let rows = context.chunks(width).zip(solution.context.chunks(width));
    for (row, (got, want)) in rows.enumerate() {
        if is_constant(row) && absorbs_scores(constant) {
            // The weights depend on the rounding of the scores, but the context is a mean of
            // values.
            let is_mean = got.iter().all(|x| x.abs() <= 1.001 * max_value);
            assert!(is_mean, "row {row} is not a mean of values: {got:?}");
            continue;
        }
        // Below -1e30 the scores are absorbed in f64 too: weights are uniform, or zero.
        let is_loose = is_constant(row) && constant_size < 1e30;
        let largest_score = if is_loose { constant_size } else { ordinary };
        let tolerance = forward_tolerance(Precision::F32, problem, largest_score);
        must(tolerance.check(&format!("context of row {row}"), got, want));
    }

    let [_, _, d_value] = tensors.input_gradients(&gradients).map(|gradient| {
        assert!(gradient.iter().all(|x| x.is_finite()), "{gradient:?}");
        gradient
    });
    let is_loose = has_grad && constant_size < 1e30;
    if !is_loose || !absorbs_scores(constant) {
        let tolerance = Precision::F32.backward(if is_loose { constant_size } else { ordinary });
        must(tensors.check_gradients(&gradients, &solution, tolerance));
    }
    // The weights of a row sum to one, which determines the sum of the value gradients.
    if problem.formula == Formula::Softmax && constant.is_finite() {
        check_value_gradient_sums(problem, &inputs, &d_value);
    }
}

/// Whether adding the constant absorbs scores in f32 but not in f64.
fn absorbs_scores(constant: f32) -> bool {
    (-1e29..-1e6).contains(&constant)
}

/// Over all keys of a head, `Σ_j dV_j = Σ_i dO_i`.
fn check_value_gradient_sums(problem: &Problem, inputs: &Inputs, d_value: &[f32]) {
    if problem.mask != Mask::Full || problem.kv_heads != problem.heads {
        return;
    }
    let width = problem.d_value;
    let sum = |rows: &[f32], x: usize| -> f64 {
        let column = rows.iter().skip(x).step_by(width);
        column.map(|x| f64::from(*x)).sum()
    };
    let heads = d_value.chunks(problem.seq_k * width);
    for (d_value, output_grad) in heads.zip(inputs.output_grad.chunks(problem.seq_q * width)) {
        for x in 0..width {
            let (got, want) = (sum(d_value, x), sum(output_grad, x));
            assert!((got - want).abs() <= 1e-3, "sum {got}, expected {want}");
        }
    }
}

/// One key has all the weight: differences of scores are far larger than rounding errors.
fn check_large_scores(mechanism: &MechanismConfig, size: f64, seq_q: usize, device: &Device) {
    let problem = Problem::new("large-scores", [1, 2, seq_q, 210, 16])
        .with_mask(Mask::Causal)
        .with_kv_heads(1)
        .with_std(size.sqrt());
    let mut inputs = problem.inputs();
    // Only the scores are large, not the values.
    let values = inputs.value.iter_mut();
    values.for_each(|x| *x /= problem.std as f32);
    let solution = solve(&problem, &inputs);
    assert!(solution.largest_score >= size);
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (context, gradients) = tensors.forward_backward(mechanism);
    // At the smallest size, the second largest score may have a weight.
    let size = size.min(1e3);
    let forward = Precision::F32.forward(size);
    must(forward.check("context", &to_vec(context), &solution.context));
    must(tensors.check_gradients(&gradients, &solution, Precision::F32.backward(size)));
}
