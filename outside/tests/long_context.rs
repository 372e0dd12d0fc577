//! A user of burn-nn's encoder becomes one of long sequences by a few changed lines.

use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use outside::{after, before};

/// Lines of one file that the other does not have.
fn changed(of: &str, other: &str) -> usize {
    let mut left: Vec<&str> = other.lines().map(str::trim).collect();
    let is_new = |line: &&str| match left.iter().position(|it| *it == line.trim()) {
        Some(at) => {
            left.remove(at);
            false
        }
        None => true,
    };
    of.lines().filter(is_new).count()
}

#[test]
fn fewer_than_ten_lines_change() {
    let before = include_str!("../src/before.rs");
    let after = include_str!("../src/after.rs");
    let [gone, new] = [changed(before, after), changed(after, before)];
    assert!(gone < 10 && new < 10, "{gone} lines gone, {new} new");
}

fn input(seq: usize, device: &Device) -> (Tensor<2, Int>, Tensor<2, Bool>) {
    let tokens: Vec<i64> = (0..seq as i64).map(|at| at * at % 11).collect();
    let padding: Vec<bool> = (0..seq).map(|at| at >= seq - 5).collect();
    let tokens = Tensor::from_data(TensorData::new(tokens, [1, seq]), device);
    let padding = Tensor::from_data(TensorData::new(padding, [1, seq]), device);
    (tokens, padding)
}

#[test]
fn a_long_sequence_is_learned_from() {
    let device = Device::flex().autodiff();
    let (tokens, padding) = input(8192, &device);
    let mut model = after::Tagger::new(11, 3, &device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = vec![];
    for _ in 0..4 {
        let said = model.forward(tokens.clone(), padding.clone());
        assert_eq!(said.dims(), [1, 8192, 3]);
        let loss = said.square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        losses.push(loss.into_scalar::<f32>());
    }
    assert!(losses[3] < losses[0], "{losses:?}");
}

#[test]
fn both_take_what_the_other_takes() {
    let device = Device::flex();
    let (tokens, padding) = input(40, &device);
    let before = before::Tagger::new(11, 3, &device).forward(tokens.clone(), padding.clone());
    let after = after::Tagger::new(11, 3, &device).forward(tokens, padding);
    assert_eq!(before.dims(), after.dims());
}
