//! One problem through one mechanism, judged by the oracle.

use burn::tensor::{Device, Tensor};
use zoo_attention::Mechanism;
use zoo_testkit::{Mismatch, Problem, Tolerance, solve};

use crate::Tensors;

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

/// Runs `mechanism` forward on `device` and compares the result with the oracle.
///
/// # Errors
///
/// The worst element, if it is further off than [`Tolerance::F32_FORWARD`].
pub fn check_forward(
    mechanism: Mechanism,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, device);
    let context = mechanism.attend(tensors.query, tensors.key, tensors.value, &tensors.options);
    let answer = solve(problem, &inputs);
    let forward = Tolerance::F32_FORWARD.for_scores_up_to(answer.largest_score);
    let error = forward.check("context", &numbers(context), &answer.context)?;
    Ok(Errors {
        context: error,
        gradients: 0.0,
        share: error / forward.relative,
    })
}

/// Runs `mechanism` forward and backward on `device` and compares the result
/// and the gradients with the oracle.
///
/// # Errors
///
/// The worst element of the first tensor that is further off than
/// [`Tolerance::F32_FORWARD`] or [`Tolerance::F32_BACKWARD`] allows.
pub fn check_gradients(
    mechanism: Mechanism,
    problem: &Problem,
    device: &Device,
) -> Result<Errors, Mismatch> {
    let inputs = problem.inputs();
    let tensors = Tensors::new(problem, &inputs, &device.clone().autodiff());
    let [query, key, value] = [tensors.query, tensors.key, tensors.value].map(Tensor::require_grad);
    let context = mechanism.attend(query.clone(), key.clone(), value.clone(), &tensors.options);
    let gradients = (context.clone() * tensors.upstream).sum().backward();

    let answer = solve(problem, &inputs);
    let forward = Tolerance::F32_FORWARD.for_scores_up_to(answer.largest_score);
    let backward = Tolerance::F32_BACKWARD.for_scores_up_to(answer.largest_score);
    let error = forward.check("context", &numbers(context), &answer.context)?;
    let mut errors = Errors {
        context: error,
        gradients: 0.0,
        share: error / forward.relative,
    };
    for (name, tensor, want) in [
        ("d_query", &query, &answer.d_query),
        ("d_key", &key, &answer.d_key),
        ("d_value", &value, &answer.d_value),
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

fn numbers(tensor: Tensor<4>) -> Vec<f32> {
    tensor
        .try_into_vec_as()
        .expect("a float tensor can be read as f32")
}
