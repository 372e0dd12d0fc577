//! Gradients of the oracle's forward pass by central differences: slow, and
//! independent of the gradients the oracle derives by hand.

use crate::oracle::solve;
use crate::problem::{Inputs, Problem};

/// `[d_query, d_key, d_value, d_bias]` of `Σ upstream · context`, two forward passes a number.
pub fn central_differences(problem: &Problem, inputs: &Inputs) -> [Vec<f64>; 4] {
    let query = each(problem, inputs, inputs.query.len(), |i| &mut i.query);
    let key = each(problem, inputs, inputs.key.len(), |i| &mut i.key);
    let value = each(problem, inputs, inputs.value.len(), |i| &mut i.value);
    let bias = each(problem, inputs, inputs.bias.len(), |i| &mut i.bias);
    [query, key, value, bias]
}

fn each(
    problem: &Problem,
    inputs: &Inputs,
    count: usize,
    part: impl Fn(&mut Inputs) -> &mut Vec<f32>,
) -> Vec<f64> {
    // The cube root of f64's precision balances truncation against cancellation;
    // inputs are f32, so the step must also be far above their rounding, and the
    // step really taken is read back after it.
    const STEP: f32 = 1e-3;
    let mut moved = inputs.clone();
    (0..count)
        .map(|at| {
            let here = part(&mut moved)[at];
            let (above, below) = (here + STEP, here - STEP);
            part(&mut moved)[at] = above;
            let up = loss(problem, &moved);
            part(&mut moved)[at] = below;
            let down = loss(problem, &moved);
            part(&mut moved)[at] = here;
            (up - down) / (f64::from(above) - f64::from(below))
        })
        .collect()
}

fn loss(problem: &Problem, inputs: &Inputs) -> f64 {
    let context = solve(problem, inputs).context;
    context
        .iter()
        .zip(&inputs.upstream)
        .map(|(o, u)| o * f64::from(*u))
        .sum()
}
