//! Recurrent layers and a model in the half types a device computes in: near what `f32` gives.

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use libtest_mimic::{Failed, Trial};
use zoo_backend::{Dtype, Opened};
use zoo_models::{GptConfig, PositionsConfig, Tokens, token_loss};
use zoo_recurrent::{Cell, Direction, RecurrentConfig};
use zoo_testkit::normals;

use crate::drawn::drawn;
use crate::support::{equal, numbers};

pub(crate) fn trials(opened: &Opened) -> Vec<Trial> {
    // Half the gap between neighbouring numbers near 1.
    let halves = [
        (Dtype::F16, DType::F16, 1.0 / f64::from(1 << 11)),
        (Dtype::Bf16, DType::BF16, 1.0 / f64::from(1 << 8)),
    ];
    let is_there = |(word, ..): &(Dtype, DType, f64)| opened.dtypes.contains(word);
    let mut trials = vec![];
    for (word, dtype, unit) in halves.into_iter().filter(is_there) {
        for cell in [Cell::Gru, Cell::Lstm] {
            let device = opened.device.clone();
            let name = format!("half/{cell}-in-{word}");
            trials.push(Trial::test(name, move || {
                recurrent(cell, dtype, unit, &device)
            }));
        }
        let device = opened.device.clone();
        let name = format!("half/gpt-in-{word}");
        trials.push(Trial::test(name, move || gpt(dtype, unit, &device)));
    }
    trials
}

/// Every parameter as another type.
struct Cast(DType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}

/// Whether numbers are so many units of the largest apart, at most.
fn near<const D: usize>(
    got: Tensor<D>,
    want: Tensor<D>,
    unit: f64,
    units: f64,
) -> Result<(), Failed> {
    let (got, want) = (numbers(got.cast(DType::F32))?, numbers(want)?);
    let size = want
        .iter()
        .fold(0.0_f32, |size, number| size.max(number.abs()));
    let error = |(got, want): (&f32, &f32)| f64::from((got - want).abs() / size);
    let worst = got.iter().zip(&want).map(error).fold(0.0, f64::max);
    // The largest of several is none that is NaN.
    let is_near = worst <= units * unit && got.iter().all(|number| number.is_finite());
    match is_near {
        true => Ok(()),
        false => Err(format!("{:.1} units apart, {units} allowed", worst / unit).into()),
    }
}

fn recurrent(cell: Cell, dtype: DType, unit: f64, device: &Device) -> Result<(), Failed> {
    let model = RecurrentConfig::new(4, 6)
        .with_cell(cell)
        .with_direction(Direction::Both)
        .init(device);
    let model = drawn(model, 7);
    let input = TensorData::new(normals("half", 2 * 5 * 4, 1.0), [2, 5, 4]);
    let input = Tensor::<3>::from_data(input, device);
    let lengths = Some(&[5, 3][..]);
    let (want, _) = model.forward(input.clone(), lengths, None);
    let (got, _) = model
        .map(&mut Cast(dtype))
        .forward(input.cast(dtype), lengths, None);
    equal(got.dtype(), dtype)?;
    // Inputs, matrices and their product are rounded, and a state carries that on.
    near(got, want, unit, 8.0)
}

fn gpt(dtype: DType, unit: f64, device: &Device) -> Result<(), Failed> {
    let model = GptConfig::new(11, 16, 4, 2)
        .with_positions(PositionsConfig::Learned { longest: 8 })
        .init(device);
    let model = drawn(model, 7);
    let tokens = Tokens::new(&[vec![1, 5, 3, 9, 0], vec![2, 7]], model.limits(), device)?;
    let want = model.forward(&tokens);
    let got = model.map(&mut Cast(dtype)).forward(&tokens);
    equal(got.dtype(), dtype)?;
    let loss = token_loss(got.clone(), &tokens, 0.1);
    equal(loss.dtype(), DType::F32)?;
    // Two layers of a dozen operations, each rounded.
    near(loss, token_loss(want.clone(), &tokens, 0.1), unit, 32.0)?;
    near(got.slice_dim(1, 0..2), want.slice_dim(1, 0..2), unit, 32.0)
}
