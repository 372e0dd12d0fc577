//! One problem through one mechanism, judged by the oracle.

use burn::tensor::{DType, Device};
use zoo_attention::Mechanism;
use zoo_testkit::{Mismatch, Precision, Problem, solve};

use crate::tensors::{Tensors, numbers};

/// The largest error of each tensor, relative to its largest number.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Errors {
    /// Of the result.
    pub context: f64,
    /// The worst of the three gradients; zero where none was taken.
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
///
/// # Errors
///
/// The worst element, if it is further off than that dtype's tolerance.
pub fn check_forward(
    mechanism: Mechanism,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let tensors = Tensors::new(problem, &problem.inputs(), device);
    let answer = solve(problem, &tensors.inputs());
    let tolerance = precision(&tensors).forward(answer.largest_score);
    let context = numbers(tensors.attend(mechanism));
    let error = tolerance.check("context", &context, &answer.context)?;
    Ok(Errors {
        context: error,
        gradients: 0.0,
        share: error / tolerance.relative,
    })
}

/// Runs `mechanism` forward and backward on `device`, in the device's dtype, and
/// compares the result and the gradients with the oracle.
///
/// # Errors
///
/// The worst element of the first tensor that is further off than that dtype's
/// tolerance.
pub fn check_gradients(
    mechanism: Mechanism,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let device = device.clone().autodiff();
    let tensors = Tensors::new(problem, &problem.inputs(), &device);
    judge_gradients(mechanism, problem, tensors)
}

/// [`check_gradients`] for tensors that are there already, on an autodiff device.
///
/// # Errors
///
/// As there.
pub fn judge_gradients(
    mechanism: Mechanism,
    problem: &Problem,
    tensors: Tensors,
) -> Result<Errors, Mismatch> {
    let answer = solve(problem, &tensors.inputs());
    let precision = precision(&tensors);
    let forward = precision.forward(answer.largest_score);
    let backward = precision.backward(answer.largest_score);
    let tensors = tensors.require_grad();
    let (context, gradients) = tensors.train(mechanism);

    let error = forward.check("context", &numbers(context), &answer.context)?;
    let mut errors = Errors {
        context: error,
        gradients: 0.0,
        share: error / forward.relative,
    };
    for (name, tensor, want) in [
        ("d_query", &tensors.query, &answer.d_query),
        ("d_key", &tensors.key, &answer.d_key),
        ("d_value", &tensors.value, &answer.d_value),
    ] {
        // A tensor the result does not depend on at all may have no gradient:
        // that is a gradient of zero.
        let got = match tensor.grad(&gradients) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; want.len()],
        };
        let error = backward.check(name, &got, want)?;
        errors = errors.max(Errors {
            context: 0.0,
            gradients: error,
            share: error / backward.relative,
        });
    }
    Ok(errors)
}

/// How precisely the tensors' dtype holds numbers.
fn precision(tensors: &Tensors) -> Precision {
    match tensors.query.dtype() {
        DType::F16 => Precision::F16,
        DType::BF16 => Precision::Bf16,
        _ => Precision::F32,
    }
}
