//! Recurrent layers, fused operations and a model in half precision, compared with `f32`.

use burn::module::{ModuleMapper, Param};
use burn::nn::{DropoutConfig, LayerNormConfig};
use burn::tensor::DType;
use zoo_backend::{Dtype, OpenDevice};
use zoo_kernels::recurrent::{Cell, Direction, RecurrentConfig};
use zoo_kernels::{add_dropout, dropout, layer_norm, relu_dropout};
use zoo_oracle::Tolerance;

use crate::support::*;

type HalfTest = fn(DType, f64, &Device);

pub(crate) fn trials(suite: &mut Suite, opened: &OpenDevice) {
    // Half the spacing of values near 1.
    let halves = [
        (Dtype::F16, DType::F16, 1.0 / f64::from(1 << 11)),
        (Dtype::Bf16, DType::BF16, 1.0 / f64::from(1 << 8)),
    ];
    let is_supported = |(name, ..): &(Dtype, DType, f64)| opened.dtypes.contains(name);
    let tests: [(&str, HalfTest); 4] = [
        ("gru", |dtype, unit, device| {
            recurrent(Cell::Gru, dtype, unit, device)
        }),
        ("lstm", |dtype, unit, device| {
            recurrent(Cell::Lstm, dtype, unit, device)
        }),
        ("gpt", gpt),
        ("fused-ops", fused_ops),
    ];
    for (dtype_name, dtype, unit) in halves.into_iter().filter(is_supported) {
        for (name, test) in tests {
            let name = format!("half/{name}-in-{dtype_name}");
            suite.add(name, move |device| test(dtype, unit, device));
        }
    }
}

struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}

/// Checks that the error is at most this many units of the largest value.
fn assert_near<const D: usize>(got: Tensor<D>, want: Tensor<D>, unit: f64, units: f64) {
    let tolerance = Tolerance {
        name: "half precision",
        pass: "forward or backward",
        relative: units * unit,
    };
    let (got, want) = (to_vec(got.cast(DType::F32)), to_vec(want));
    must(tolerance.compare("result", &got, &want));
}

fn recurrent(cell: Cell, dtype: DType, unit: f64, device: &Device) {
    let model = RecurrentConfig::new(4, 6)
        .with_cell(cell)
        .with_direction(Direction::Both)
        .init(device);
    let model = with_random_weights(model, 7);
    let input = named_normal("half", [2, 5, 4], device);
    let lengths = Some(&[5, 3][..]);
    let (want, _) = model.forward(input.clone(), lengths, None);
    let (got, _) = model
        .map(&mut Cast(dtype))
        .forward(input.cast(dtype), lengths, None);
    assert_eq!(got.dtype(), dtype);
    // Inputs, weights and products are rounded, and errors accumulate in the state.
    assert_near(got, want, unit, 8.0)
}

fn fused_ops(dtype: DType, unit: f64, device: &Device) {
    const EPSILON: f64 = 1e-5;
    let device = &device.clone().autodiff();
    let norm = LayerNormConfig::new(9).with_epsilon(EPSILON).init(device);
    // Both start from the rounded values.
    let input = named_normal("fused-half", [4, 9], device)
        .cast(dtype)
        .detach();
    let wide = input.clone().cast(DType::F32).detach().require_grad();
    let input = input.require_grad();
    let want = layer_norm(&norm, EPSILON, wide.clone());
    let got = layer_norm(&norm.map(&mut Cast(dtype)), EPSILON, input.clone());
    assert_eq!(got.dtype(), dtype);
    // Rounded once. The loss below is a sum of cubes, since the gradient of a plain sum is zero.
    assert_near(got.clone().inner(), want.clone().inner(), unit, 2.0);
    let by_wide = (want.clone() * want.clone() * want).sum().backward();
    let by_half = (got.clone() * got.clone() * got).sum().backward();
    let want = wide.grad(&by_wide).expect("no gradient");
    // Three rounded products, and terms that cancel.
    assert_near(input.grad(&by_half).expect("no gradient"), want, unit, 32.0);
    let module = DropoutConfig::new(0.5).init();
    let ones = Tensor::<2>::ones([4, 9], device).cast(dtype);
    for got in [
        dropout(&module, ones.clone()),
        add_dropout(&module, ones.zeros_like(), ones.clone()),
        relu_dropout(&module, ones),
    ] {
        assert_eq!(got.dtype(), dtype);
        let got = to_vec(got.cast(DType::F32));
        assert!(got.iter().all(|value| [0.0, 2.0].contains(value)));
    }
}

fn gpt(dtype: DType, unit: f64, device: &Device) {
    let model = GptConfig::new(11, 16, 4, 2)
        .with_positions(PositionEncoding::learned(8))
        .init(device);
    let model = with_random_weights(model, 7);
    let tokens = tokens(&[vec![1, 5, 3, 9, 0], vec![2, 7]], model.limits(), device);
    let want = model.forward(&tokens);
    let got = model.map(&mut Cast(dtype)).forward(&tokens);
    assert_eq!(got.dtype(), dtype);
    let loss = token_loss(got.clone(), &tokens, 0.1);
    assert_eq!(loss.dtype(), DType::F32);
    // Two layers of a dozen rounded operations.
    assert_near(loss, token_loss(want.clone(), &tokens, 0.1), unit, 32.0);
    assert_near(got.slice_dim(1, 0..2), want.slice_dim(1, 0..2), unit, 32.0)
}
