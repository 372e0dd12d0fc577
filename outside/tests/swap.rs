//! Replacing burn-nn's attention by `zoo-attention`'s, with its weights.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig as BurnConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};

fn max_difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
    (a - b).abs().max().into_scalar::<f32>()
}

#[test]
fn attention_with_burn_weights_matches_and_trains() {
    let device = Device::flex().autodiff();
    let x = Tensor::<3>::random([2, 10, 32], Distribution::Normal(0.0, 1.0), &device);
    let burn = BurnConfig::new(32, 4).with_dropout(0.0).init(&device);
    let record = burn.clone().into_record();
    let mut ours: MultiHeadAttention = MultiHeadAttentionConfig::new(32, 4)
        .init(&device)
        .load_record(record);

    let expected = burn.forward(MhaInput::self_attn(x.clone())).context;
    let forward =
        |layer: &MultiHeadAttention| layer.forward(AttentionInput::self_attn(x.clone())).context;
    let error = max_difference(forward(&ours), expected);
    assert!(error < 1e-5, "{error}");

    let mut optimizer = AdamConfig::new().init();
    let loss = |layer: &MultiHeadAttention| (forward(layer) - x.clone()).square().mean();
    let before = loss(&ours);
    let gradients = GradientsParams::from_grads(before.backward(), &ours);
    ours = optimizer.step(1e-2, ours, gradients);
    let [before, after] = [before, loss(&ours)].map(|loss| loss.into_scalar::<f32>());
    assert!(after < before, "loss {before}, then {after}");
}
