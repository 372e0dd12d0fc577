//! Constants that people mask with, and scores that leave no digits for anything else.
//!
//! A bias of -1e9 hides a key as well as a mask does, unless all keys of a row have it. Such a
//! row must not spoil the gradients of the others, which share its keys and values.

use burn::tensor::Device;
use zoo_attention::{Mechanism, MechanismConfig};
use zoo_conformance::*;
use zoo_oracle::{Formula, Inputs, Mask, Precision, Problem, solve};

use crate::others;

/// What masks are made of: by hand, by Hugging Face's models, and the minima of f16 and bf16.
const CONSTANTS: [(&str, f32); 7] = [
    ("1e4", -1e4),
    ("f16-min", -65_504.0),
    ("1e9", -1e9),
    ("1e30", -1e30),
    ("bf16-min", -3.389_531_4e38),
    ("f32-min", f32::MIN),
    ("infinity", f32::NEG_INFINITY),
];

/// Scores up to about this size.
const SCORES: [(&str, f64); 3] = [("1e3", 1e3), ("1e6", 1e6), ("1e10", 1e10)];

/// The row of each head whose keys all have the constant.
const CONSTANT_ROW: usize = 70;

pub(crate) fn trials(suite: &mut Suite) {
    for mechanism in [Mechanism::Standard, Mechanism::Flash] {
        let config = MechanismConfig::from(mechanism);
        for (name, constant) in CONSTANTS {
            for learns in [false, true] {
                let pass = if learns { "and-learns" } else { "alone" };
                let name = format!("{mechanism}/masked-by/{name}/{pass}");
                let problem = masked(&config).expect("it takes a bias");
                suite.add_training(name, move |device| {
                    masked_by(&config, &problem, constant, learns, device);
                });
            }
        }
        for (name, size) in SCORES {
            for seq_q in [150, 5] {
                let name = format!("{mechanism}/scores-of/{name}/queries-{seq_q}");
                suite.add_training(name, move |device| scores_of(&config, size, seq_q, device));
            }
        }
    }
    for (name, mechanism) in others::mechanisms() {
        // The hard choice is discontinuous in the scores: a bias that rounds them decides it.
        let is_hard = mechanism.mechanism() == Mechanism::Hard;
        let Some(problem) = masked(&mechanism).filter(|_| !is_hard) else {
            continue;
        };
        for (constant_name, constant) in [CONSTANTS[2], CONSTANTS[5]] {
            let problem = problem.clone();
            let name = format!("{name}/masked-by/{constant_name}/alone");
            suite.add_training(name, move |device| {
                masked_by(&mechanism, &problem, constant, false, device);
            });
        }
    }
}

/// A problem of several tiles with a bias; none if the mechanism takes no bias.
fn masked(mechanism: &MechanismConfig) -> Option<Problem> {
    let problem = Problem::new("masked", [1, 4, SEQ_Q, SEQ_K, 16]);
    others::with_heads_of(mechanism, problem.with_bias([1, 4, SEQ_Q, SEQ_K]))
}

const SEQ_Q: usize = 130;
const SEQ_K: usize = 200;

/// Every third key of each row has the constant for a bias, and all keys of one row have it.
/// If that row `learns`, it has an upstream gradient as well.
fn masked_by(
    mechanism: &MechanismConfig,
    problem: &Problem,
    constant: f32,
    learns: bool,
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
    if !learns {
        let upstream = inputs.upstream.chunks_mut(problem.d_value);
        let constant_rows = upstream.enumerate().filter(|(row, _)| is_constant(*row));
        constant_rows.for_each(|(_, row)| row.fill(0.0));
    }

    let tensors = Tensors::new(problem, &inputs, device);
    let problem = &given(mechanism, problem, &tensors);
    let answer = solve(problem, &inputs);
    let bias = tensors.options.bias.clone();
    let mut tensors = tensors.require_grad();
    if !learns {
        // A pass with a gradient by the bias is computed by other kernels on some backends.
        tensors.options.bias = bias;
    }
    let (context, gradients) = tensors.train(mechanism);
    let context = numbers(context);

    // What has the constant has no weight in rows with other keys: the scores of these say how
    // far off a result may be.
    let without = |&b: &f32| if b == constant { 0.0 } else { b };
    let ordinary = Inputs {
        bias: inputs.bias.iter().map(without).collect(),
        ..inputs.clone()
    };
    let ordinary = solve(problem, &ordinary).largest_score;
    let of_constants = f64::from(constant.abs());
    let largest = inputs.value.iter().fold(0f32, |most, x| most.max(x.abs()));
    let width = problem.d_value;
    let rows = context.chunks(width).zip(answer.context.chunks(width));
    for (row, (got, want)) in rows.enumerate() {
        if is_constant(row) && swallows_scores(constant) {
            // What is left of the scores depends on how they are rounded; but it is a mean of
            // the values.
            let is_mean = got.iter().all(|x| x.abs() <= 1.001 * largest);
            assert!(is_mean, "row {row} is no mean of values: {got:?}");
            continue;
        }
        // Below -1e30 nothing is left of the scores in f64 either: all weights are equal, or none.
        let is_loose = is_constant(row) && of_constants < 1e30;
        let tolerance = Precision::F32.forward(if is_loose { of_constants } else { ordinary });
        must(tolerance.check(&format!("context of row {row}"), got, want));
    }

    let [_, _, d_value] = tensors.gradients_by_inputs(&gradients).map(|gradient| {
        assert!(gradient.iter().all(|x| x.is_finite()), "{gradient:?}");
        gradient
    });
    let is_loose = learns && of_constants < 1e30;
    if !is_loose || !swallows_scores(constant) {
        let tolerance = Precision::F32.backward(if is_loose { of_constants } else { ordinary });
        must(tensors.check_gradients(&gradients, &answer, tolerance));
    }
    // Weights of a row sum to one, whatever they are: so do the gradients of values.
    if problem.formula == Formula::Softmax && constant.is_finite() {
        sums_agree(problem, &inputs, &d_value);
    }
}

/// Whether scores are lost in f32 beside the constant, and not in f64.
fn swallows_scores(constant: f32) -> bool {
    (-1e29..-1e6).contains(&constant)
}

/// Over all keys of a head, `Σ_j dV_j = Σ_i dO_i`.
fn sums_agree(problem: &Problem, inputs: &Inputs, d_value: &[f32]) {
    if problem.mask != Mask::Full || problem.kv_heads != problem.heads {
        return;
    }
    let width = problem.d_value;
    let sum = |rows: &[f32], x: usize| -> f64 {
        let column = rows.iter().skip(x).step_by(width);
        column.map(|x| f64::from(*x)).sum()
    };
    let heads = d_value.chunks(problem.seq_k * width);
    for (d_value, upstream) in heads.zip(inputs.upstream.chunks(problem.seq_q * width)) {
        for x in 0..width {
            let (got, want) = (sum(d_value, x), sum(upstream, x));
            assert!((got - want).abs() <= 1e-3, "they sum to {got}, not {want}");
        }
    }
}

/// One key has all the weight: the differences between scores are far larger than rounding.
fn scores_of(mechanism: &MechanismConfig, size: f64, seq_q: usize, device: &Device) {
    let problem = Problem::new("large-scores", [1, 2, seq_q, 210, 16])
        .with_mask(Mask::Causal)
        .with_kv_heads(1)
        .with_spread(size.sqrt());
    let mut inputs = problem.inputs();
    // Values of ordinary size: only the scores are large.
    let values = inputs.value.iter_mut();
    values.for_each(|x| *x /= problem.spread as f32);
    let answer = solve(&problem, &inputs);
    assert!(answer.largest_score >= size, "{:e}", answer.largest_score);
    let tensors = Tensors::new(&problem, &inputs, device).require_grad();
    let (context, gradients) = tensors.train(mechanism);
    // The second best key of some row may be near enough to count at the smallest size.
    let of_size = size.min(1e3);
    let forward = Precision::F32.forward(of_size);
    must(forward.check("context", &numbers(context), &answer.context));
    must(tensors.check_gradients(&gradients, &answer, Precision::F32.backward(of_size)));
}
