//! Linear layers of `zoo-kernels` and their gradients against plain loops in `f64`.

use burn::module::Param;
use burn::nn::{Linear, LinearConfig};
use zoo_kernels::{Activation, is_on_host, linear, linear_transposed};

use crate::support::*;

type Layer = fn(&Linear, Tensor<2>) -> Tensor<2>;

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("linear", |device| {
        // Rows, input and output size: few rows with and without remainders, one and several tasks.
        let sizes = [
            [5, 37, 18],
            [9, 20, 31],
            [1, 1, 1],
            [1, 70, 33],
            [2, 16, 64],
            [8, 130, 257],
            [150, 67, 130],
        ];
        // Other devices call Burn's operations.
        let has_kernels = is_on_host(&Tensor::<1>::zeros([1], device));
        let count = if has_kernels { sizes.len() } else { 2 };
        for size in sizes.into_iter().take(count) {
            for activation in ACTIVATIONS {
                check(size, activation, true, device);
            }
            check(size, Activation::Identity, false, device);
            check(size, Activation::GeluTanh, false, device);
        }
    }),
    ("linear-transposed", |device| {
        for [rows, d_input, d_output] in [[1, 70, 33], [4, 256, 100], [7, 5, 3], [40, 33, 65]] {
            let input = named_normal::<2>("x", [rows, d_input], device).require_grad();
            let table = named_normal::<2>("table", [d_output, d_input], device).require_grad();
            let up = named_normal::<2>("up", [rows, d_output], device);
            let output = linear_transposed(table.clone(), input.clone());
            let gradients = (output.clone() * up.clone()).sum().backward();
            let (x, up) = (Rows::new(&input), Rows::new(&up));
            let table_rows = Rows::new(&table);
            assert_near(output, &x.matmul(&table_rows.transposed()), "output");
            let got = |tensor: &Tensor<2>| tensor.grad(&gradients).expect("no gradient");
            assert_near(got(&input), &up.matmul(&table_rows), "d_input");
            assert_near(got(&table), &up.transposed().matmul(&x), "d_weight");
        }
    }),
    ("linear-has-the-precision-of-f32", |device| {
        const SIZE: usize = 64;
        // TF32 rounds it to 1. Sums of 64 are exact in f32.
        let element = 1.0 + 1.0 / f32::from(1u16 << 13);
        let layers: [(&str, Layer); 2] = [
            ("linear", |module, x| {
                linear(module, Activation::Identity, x)
            }),
            ("linear transposed", |module, x| {
                linear_transposed(module.weight.val(), x)
            }),
        ];
        for (name, layer) in layers {
            for (of_input, of_weight) in [(element, 1.0), (1.0, element)] {
                let matrix = |value: f32| Tensor::<2>::full([SIZE, SIZE], value, device);
                let module = Linear {
                    weight: Param::from_tensor(matrix(of_weight)).set_require_grad(true),
                    bias: Some(Param::from_tensor(Tensor::zeros([SIZE], device))),
                };
                let input = matrix(of_input).require_grad();
                let output = layer(&module, input.clone());
                let gradients = output.clone().sum().backward();
                let d_input = input.grad(&gradients).expect("no gradient");
                let d_weight = module.weight.grad(&gradients).expect("no gradient");
                for (of, tensor, terms) in [
                    ("output", output, element),
                    ("d_input", d_input, of_weight),
                    ("d_weight", d_weight, of_input),
                ] {
                    let want = vec![SIZE as f32 * terms; SIZE * SIZE];
                    assert_eq!(to_vec(tensor), want, "{name}: {of}");
                }
            }
        }
    }),
    ("linear-of-a-transposed-tensor", |device| {
        let module = LinearConfig::new(6, 5).init(device);
        let input = named_normal::<3>("turned", [2, 6, 3], device).swap_dims(1, 2);
        let copied = Tensor::<3>::from_data(input.to_data(), device);
        let apply = |input| linear(&module, Activation::Relu, input);
        let (got, want) = (apply(input), apply(copied));
        assert_eq!(got.dims(), [2, 3, 5]);
        assert_eq!(to_vec(got), to_vec(want));
    }),
    ("linear-does-not-modify-its-output", |device| {
        // The backward pass overwrites gradients, which must not be shared with the output.
        let module = LinearConfig::new(4, 3).init(device);
        let input = named_normal::<2>("x", [12, 4], device).require_grad();
        let output = linear(&module, Activation::Tanh, input);
        let before = to_vec(output.clone());
        (output.clone() * output.clone()).sum().backward();
        assert_eq!(to_vec(output), before);
    }),
    ("linear-of-nan", |device| {
        let module = LinearConfig::new(2, 3).init(device);
        let input = Tensor::<2>::from_data([[f32::NAN, 1.0], [1.0, 1.0]], device);
        for activation in ACTIVATIONS {
            // The maximum of NaN and zero is unspecified on GPUs.
            if activation == Activation::Relu && !is_on_host(&input) {
                continue;
            }
            let output = to_vec(linear(&module, activation, input.clone()));
            let is_nan: Vec<bool> = output.iter().map(|y| y.is_nan()).collect();
            assert_eq!(
                is_nan,
                [true, true, true, false, false, false],
                "{activation:?}"
            );
        }
    }),
    ("linear-invalid-inputs", |device| {
        let module = LinearConfig::new(4, 3).init(device);
        assert_panics_containing(
            || {
                linear(
                    &module,
                    Activation::Identity,
                    Tensor::<2>::zeros([2, 3], device),
                )
            },
            "linear: the last dimension must be 4, got [2, 3]",
        );
        let table = module.weight.val();
        assert_panics_containing(
            || linear_transposed(table.clone(), Tensor::<3>::zeros([1, 2, 4], device)),
            "linear transposed: the last dimension must be 3, got [1, 2, 4]",
        );
    }),
];

const ACTIVATIONS: [Activation; 4] = [
    Activation::Identity,
    Activation::Relu,
    Activation::Tanh,
    Activation::GeluTanh,
];

/// A matrix in `f64`.
struct Rows {
    values: Vec<f64>,
    columns: usize,
}

impl Rows {
    fn new(tensor: &Tensor<2>) -> Self {
        let [_, columns] = tensor.dims();
        let values = to_vec(tensor.clone()).into_iter().map(f64::from).collect();
        Self { values, columns }
    }

    fn transposed(&self) -> Self {
        let rows = self.values.len() / self.columns;
        let value = |i: usize| self.values[i % rows * self.columns + i / rows];
        Self {
            values: (0..self.values.len()).map(value).collect(),
            columns: rows,
        }
    }

    fn matmul(&self, other: &Self) -> Vec<f64> {
        let other = other.transposed();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let row = |a: &[f64]| -> Vec<f64> {
            let columns = other.values.chunks(other.columns);
            columns.map(|b| dot(a, b)).collect()
        };
        self.values.chunks(self.columns).flat_map(row).collect()
    }
}

fn assert_near(got: Tensor<2>, want: &[f64], name: &str) {
    let tolerance = Precision::F32.backward(0.0);
    must(tolerance.check(name, &to_vec(got), want));
}

/// The function and its derivative.
fn function(activation: Activation, x: f64) -> [f64; 2] {
    match activation {
        Activation::Identity => [x, 1.0],
        Activation::Relu => [x.max(0.0), if x > 0.0 { 1.0 } else { 0.0 }],
        Activation::Tanh => [x.tanh(), 1.0 - x.tanh().powi(2)],
        Activation::GeluTanh => {
            let slope = (2.0 / std::f64::consts::PI).sqrt();
            let tanh = (slope * (x + 0.044715 * x.powi(3))).tanh();
            let inner = slope * (1.0 + 3.0 * 0.044715 * x * x);
            let half = 0.5 * (1.0 + tanh);
            [x * half, half + 0.5 * x * (1.0 - tanh * tanh) * inner]
        }
    }
}

fn check(size: [usize; 3], activation: Activation, has_bias: bool, device: &Device) {
    let [rows, d_input, d_output] = size;
    // Sums of the magnitude of the input, as after initialization: tanh of larger ones would have
    // their absolute error, relative to 1.
    let weight = named_normal::<2>("weight", [d_input, d_output], device);
    let weight = weight / (d_input as f64).sqrt();
    let bias = named_normal::<1>("bias", [d_output], device);
    let module = Linear {
        weight: Param::from_tensor(weight).set_require_grad(true),
        bias: has_bias.then(|| Param::from_tensor(bias).set_require_grad(true)),
    };
    let input = named_normal::<2>("x", [rows, d_input], device).require_grad();
    let up = named_normal::<2>("up", [rows, d_output], device);
    let output = linear(&module, activation, input.clone());
    let gradients = (output.clone() * up.clone()).sum().backward();

    let (x, weight) = (Rows::new(&input), Rows::new(&module.weight.val()));
    let mut sums = x.matmul(&weight);
    if let Some(bias) = &module.bias {
        let bias = to_vec(bias.val());
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += f64::from(bias[i % d_output]);
        }
    }
    let want: Vec<f64> = sums.iter().map(|x| function(activation, *x)[0]).collect();
    assert_near(output, &want, "output");
    let mut d_sums = Rows::new(&up);
    for (d, sum) in d_sums.values.iter_mut().zip(&sums) {
        *d *= function(activation, *sum)[1];
    }
    let d_input = input.grad(&gradients).expect("no gradient");
    assert_near(d_input, &d_sums.matmul(&weight.transposed()), "d_input");
    let d_weight = module.weight.grad(&gradients).expect("no gradient");
    assert_near(d_weight, &x.transposed().matmul(&d_sums), "d_weight");
    if let Some(bias) = &module.bias {
        let mut want = vec![0.0; d_output];
        for (i, d) in d_sums.values.iter().enumerate() {
            want[i % d_output] += d;
        }
        let d_bias = bias.grad(&gradients).expect("no gradient");
        assert_near(d_bias.unsqueeze_dim(0), &want, "d_bias");
    }
}
