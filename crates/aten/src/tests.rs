//! That the bindings do what LibTorch does.

use super::*;

#[test]
fn numbers_are_taken_over_and_kept_for_as_long_as_anybody_looks() {
    let numbers: Vec<f32> = (0..24).map(|at| at as f32).collect();
    let place = numbers.as_ptr();
    let tensor = of_numbers(numbers, &[2, 3, 4]).expect("a tensor");
    assert!(tensor.data_ptr().cast_const().cast() == place);
    assert_eq!(tensor.size(), [2, 3, 4]);
    // A part of it, which outlives it.
    let part = tensor.select(0, 1).select(0, 2);
    drop(tensor);
    assert_eq!(part, Tensor::from_slice(&[20.0f32, 21.0, 22.0, 23.0]));
    let nothing = of_numbers(vec![], &[0, 4]).expect("a tensor without numbers");
    assert_eq!(nothing.size(), [0, 4]);
}

#[test]
#[should_panic(expected = "a tensor of [2, 3] cannot have 5 numbers")]
fn dimensions_and_numbers_must_agree() {
    let _ = of_numbers(vec![0.0; 5], &[2, 3]);
}

/// The step is LibTorch's on any device: here it is shown against the formula.
#[test]
fn a_step_is_adams() {
    let numbers = |numbers: [f32; 3]| Tensor::from_slice(&numbers);
    for (is_adamw, decay) in [(false, 0.0), (false, 0.1), (true, 0.1)] {
        let x = [1.0, -2.0, 0.5];
        let g = [0.3, 0.1, -0.7];
        let m = [0.2, 0.0, -0.1];
        let v = [0.04, 0.01, 0.3];
        let (mut parameter, mut first, mut second) = (numbers(x), numbers(m), numbers(v));
        let adam = Adam {
            is_adamw,
            rate: 0.01,
            betas: [0.9, 0.98],
            decay,
            epsilon: 1e-9,
        };
        let time = time_on(Device::Cpu, 3);
        adam_step(
            &mut parameter,
            &numbers(g),
            [&mut first, &mut second],
            &time,
            adam,
        )
        .expect("a step on the host");
        for at in 0..3 {
            let (mut x, mut g) = (f64::from(x[at]), f64::from(g[at]));
            if is_adamw {
                x -= 0.01 * decay * x;
            } else {
                g += decay * x;
            }
            let m = 0.9 * f64::from(m[at]) + 0.1 * g;
            let v = 0.98 * f64::from(v[at]) + 0.02 * g * g;
            let grown = |beta: f64| 1.0 - beta.powi(3);
            x -= 0.01 * (m / grown(0.9)) / ((v / grown(0.98)).sqrt() + 1e-9);
            let got = |tensor: &Tensor| tensor.double_value(&[at as i64]);
            for (got, expected) in [(got(&parameter), x), (got(&first), m), (got(&second), v)] {
                assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
            }
        }
    }
}

/// Against LibTorch's own autodiff.
#[test]
fn a_norm_goes_back_as_it_came() {
    tch::manual_seed(3);
    let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
    let (input, arrived) = (random(&[2, 3, 5]), random(&[2, 3, 5]));
    let (gamma, beta) = (random(&[5]), random(&[5]));
    let (_, mean, factor) = input.native_layer_norm([5], Some(&gamma), Some(&beta), 1e-5);
    let got = layer_norm_backward([&arrived, &input, &gamma], [&mean, &factor])
        .expect("a norm on the host");
    let leaves = [&input, &gamma, &beta].map(|tensor| tensor.copy().set_requires_grad(true));
    let [input, gamma, beta] = &leaves;
    let output = input.layer_norm([5], Some(gamma), Some(beta), 1e-5, false);
    (output * arrived).sum(Kind::Float).backward();
    for (got, leaf) in got.iter().zip(&leaves) {
        let off = (got - leaf.grad()).abs().max().double_value(&[]);
        assert!(off < 1e-5, "{off}");
    }
}

#[test]
fn what_cannot_be_computed_is_said() {
    let tensor = Tensor::zeros([1, 4, 2, 8], (Kind::Float, Device::Cpu));
    let error = flash_attention([&tensor, &tensor, &tensor], false, 1.0, None)
        .expect_err("there is none for the host");
    let said = error.to_string();
    assert!(
        said.starts_with("LibTorch's flash attention failed: "),
        "{said}"
    );
    assert!(said.contains("CPU"), "{said}");
}
