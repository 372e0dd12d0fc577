//! The product against a plain loop in `f64`.

use super::finish::{column_sums, finish_backward};
use super::*;
use crate::random::mix;

fn random(count: usize, seed: u64) -> Vec<f32> {
    let element = |i: usize| (mix(seed ^ mix(i as u64)) >> 40) as f32 / (1 << 23) as f32 - 1.0;
    (0..count).map(element).collect()
}

fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    let rows = matrix.len() / columns.max(1);
    let element = |i: usize| matrix[i % rows * columns + i / rows];
    (0..matrix.len()).map(element).collect()
}

/// Rows, inner dimension and columns: few rows, remainders of every vector and tile, several tasks,
/// empty dimensions.
const SIZES: [[usize; 3]; 16] = [
    [1, 1, 1],
    [1, 300, 130],
    [2, 17, 33],
    [3, 64, 64],
    [7, 261, 70],
    [8, 16, 257],
    [7, 20, 1300],
    [9, 5, 3],
    [13, 7, 65],
    [64, 256, 64],
    [100, 37, 130],
    [200, 515, 71],
    [401, 129, 192],
    [33, 40, 1030],
    [5, 0, 9],
    [20, 0, 9],
];

const ACTIVATIONS: [Activation; 4] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Tanh,
    Activation::GeluTanh,
];

#[test]
fn products_equal_a_plain_loop() {
    for [rows, inner, columns] in SIZES {
        let (a, b) = (random(rows * inner, 1), random(inner * columns, 2));
        let product: Vec<f64> = (0..rows * columns)
            .map(|i| {
                let (row, column) = (i / columns, i % columns);
                let term =
                    |k: usize| f64::from(a[row * inner + k]) * f64::from(b[k * columns + column]);
                (0..inner).map(term).sum()
            })
            .collect();
        let (a_columns, b_columns) = (transposed(&a, inner), transposed(&b, columns));
        for a in [
            Matrix::new(&a, [rows, inner], false),
            Matrix::new(&a_columns, [rows, inner], true),
        ] {
            for b in [
                Matrix::new(&b, [inner, columns], false),
                Matrix::new(&b_columns, [inner, columns], true),
            ] {
                let size = [rows, inner, columns];
                let c = gemm(size, a, b, Finish::NOTHING);
                assert_eq!(c.len(), rows * columns);
                for (i, (c, expected)) in c.iter().zip(&product).enumerate() {
                    let error = (f64::from(*c) - expected).abs();
                    let bound = 1e-6 * (inner as f64).sqrt().max(1.0);
                    let transposed = [a.is_transposed, b.is_transposed];
                    assert!(
                        error < bound,
                        "{size:?}, transposed {transposed:?}: {c} at {i}, expected {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn bias_and_activation_are_applied_once() {
    for [rows, inner, columns] in SIZES {
        let (a, b) = (random(rows * inner, 1), random(inner * columns, 2));
        let a = Matrix::new(&a, [rows, inner], false);
        let b = Matrix::new(&b, [inner, columns], false);
        let bias = random(columns, 4);
        let size = [rows, inner, columns];
        let product = |finish: Finish<'_>| gemm(size, a, b, finish);
        let plain = product(Finish::NOTHING);
        for activation in ACTIVATIONS {
            let mut sums = vec![f32::NAN; rows * columns];
            let finished = product(Finish {
                bias: Some(&bias),
                activation,
                sums: Some(&mut sums),
            });
            for (i, plain) in plain.iter().enumerate() {
                let sum = plain + bias[i % columns];
                assert_eq!(sums[i], sum, "{size:?}");
                let expected = function(activation, f64::from(sum));
                let error = (f64::from(finished[i]) - expected).abs();
                assert!(
                    error < 1e-6 * f64::from(sum.abs()).max(1.0),
                    "{size:?}, {activation:?}"
                );
            }
        }
    }
}

fn function(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Tanh => x.tanh(),
        Activation::GeluTanh => {
            let argument = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            0.5 * x * (1.0 + argument.tanh())
        }
    }
}

/// The derivative by central differences, and the bias gradient as a sum over rows.
#[test]
fn gradient_of_bias_and_activation() {
    for [rows, _, columns] in SIZES {
        let sums: Vec<f32> = random(rows * columns, 5).iter().map(|x| 4.0 * x).collect();
        let output_grad = random(rows * columns, 6);
        for activation in ACTIVATIONS {
            let saved: Vec<f32> = match activation.needs_input() {
                true => sums.clone(),
                false => {
                    let outputs = sums.iter().map(|x| function(activation, f64::from(*x)));
                    outputs.map(|y| y as f32).collect()
                }
            };
            let mut gradient = output_grad.clone();
            let bias = finish_backward(activation, &saved, &mut gradient, columns);
            assert_eq!(bias, column_sums(&gradient, columns));
            let mut expected = vec![0.0; columns];
            for (i, gradient) in gradient.iter().enumerate() {
                let (x, step) = (f64::from(sums[i]), 1e-5);
                let difference = function(activation, x + step) - function(activation, x - step);
                let d = f64::from(output_grad[i]) * difference / (2.0 * step);
                let error = (f64::from(*gradient) - d).abs();
                assert!(
                    error < 1e-6,
                    "{activation:?} at {x}: {gradient}, expected {d}"
                );
                expected[i % columns] += d;
            }
            for (bias, expected) in bias.iter().zip(expected) {
                assert!((f64::from(*bias) - expected).abs() < 1e-5, "{activation:?}");
            }
        }
    }
}
