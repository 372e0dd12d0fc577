//! Gradients by central differences: slow, and independent of the gradients the oracle derives
//! by hand.

use crate::oracle::solve;
use crate::problem::{Inputs, Problem};

/// `[d_query, d_key, d_value, d_bias]` of `Σ upstream · context`, two forward passes a number.
pub fn central_differences(problem: &Problem, inputs: &Inputs) -> [Vec<f64>; 4] {
    differences(inputs, |inputs| {
        let context = solve(problem, inputs).context;
        let pairs = context.iter().zip(&inputs.upstream);
        pairs.map(|(o, u)| o * f64::from(*u)).sum()
    })
}

/// `[d_query, d_key, d_value, d_bias]` of a function of the inputs.
pub(crate) fn differences(inputs: &Inputs, loss: impl Fn(&Inputs) -> f64) -> [Vec<f64>; 4] {
    type Part = fn(&mut Inputs) -> &mut Vec<f32>;
    let parts: [Part; 4] = [
        |inputs| &mut inputs.query,
        |inputs| &mut inputs.key,
        |inputs| &mut inputs.value,
        |inputs| &mut inputs.bias,
    ];
    parts.map(|part| {
        let numbers = part(&mut inputs.clone()).clone();
        slopes(&numbers, |numbers| {
            let mut moved = inputs.clone();
            *part(&mut moved) = numbers.to_vec();
            loss(&moved)
        })
    })
}

/// The derivative of a function by each of these numbers.
pub(crate) fn slopes(numbers: &[f32], function: impl Fn(&[f32]) -> f64) -> Vec<f64> {
    // The cube root of f64's precision balances truncation against cancellation;
    // inputs are f32, so the step must also be far above their rounding, and the
    // step really taken is read back after it.
    const STEP: f32 = 1e-3;
    let mut moved = numbers.to_vec();
    (0..numbers.len())
        .map(|at| {
            let [above, below] = [numbers[at] + STEP, numbers[at] - STEP];
            let [up, down] = [above, below].map(|number| {
                moved[at] = number;
                function(&moved)
            });
            moved[at] = numbers[at];
            (up - down) / (f64::from(above) - f64::from(below))
        })
        .collect()
}

/// Checks gradients by hand against those by differences, which carry about 1e-6 of the
/// gradient's size; a wrong term shows as 1e-2 and more. 1e-9 is for a gradient of zero.
#[cfg(test)]
pub(crate) fn assert_close(problem: &str, name: &str, by_hand: &[f64], by_difference: &[f64]) {
    assert_eq!(by_hand.len(), by_difference.len(), "{problem} {name}");
    let size = by_hand.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    for (at, (a, b)) in by_hand.iter().zip(by_difference).enumerate() {
        assert!(
            (a - b).abs() <= 1e-4 * size + 1e-9,
            "{problem} {name}[{at}]: {a} by hand, {b} by differences"
        );
    }
}
