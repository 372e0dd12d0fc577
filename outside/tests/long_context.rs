//! Replacing burn-nn's encoder by a long-context one takes few changed lines.

use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use outside::{after, before};

/// The number of lines that `other` does not have.
fn changed(text: &str, other: &str) -> usize {
    let mut remaining: Vec<&str> = other.lines().map(str::trim).collect();
    let is_new = |line: &&str| match remaining.iter().position(|l| *l == line.trim()) {
        Some(index) => {
            remaining.remove(index);
            false
        }
        None => true,
    };
    text.lines().filter(is_new).count()
}

#[test]
fn fewer_than_ten_lines_change() {
    let before = include_str!("../src/before.rs");
    let after = include_str!("../src/after.rs");
    let [removed, added] = [changed(before, after), changed(after, before)];
    assert!(
        removed < 10 && added < 10,
        "{removed} lines removed, {added} added"
    );
}

fn input(seq: usize, device: &Device) -> (Tensor<2, Int>, Tensor<2, Bool>) {
    let tokens: Vec<i64> = (0..seq as i64).map(|i| i * i % 11).collect();
    let padding: Vec<bool> = (0..seq).map(|i| i >= seq - 5).collect();
    let tokens = Tensor::from_data(TensorData::new(tokens, [1, seq]), device);
    let padding = Tensor::from_data(TensorData::new(padding, [1, seq]), device);
    (tokens, padding)
}

#[test]
fn training_on_a_long_sequence_reduces_the_loss() {
    let device = Device::flex().autodiff();
    let (tokens, padding) = input(8192, &device);
    let mut model = after::Tagger::new(11, 3, &device);
    let mut optimizer = AdamConfig::new().init();
    let mut losses = vec![];
    for _ in 0..4 {
        let logits = model.forward(tokens.clone(), padding.clone());
        assert_eq!(logits.dims(), [1, 8192, 3]);
        let loss = logits.square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(1e-3, model, gradients);
        losses.push(loss.into_scalar::<f32>());
    }
    assert!(losses[3] < losses[0], "{losses:?}");
}

#[test]
fn both_have_the_same_interface() {
    let device = Device::flex();
    let (tokens, padding) = input(40, &device);
    let before = before::Tagger::new(11, 3, &device).forward(tokens.clone(), padding.clone());
    let after = after::Tagger::new(11, 3, &device).forward(tokens, padding);
    assert_eq!(before.dims(), after.dims());
}
