//! burn-nn's attention is swapped for ours, with its weights, and trains.

use burn::module::Module;
use burn::nn::attention::{MhaInput, MultiHeadAttentionConfig as TheirConfig};
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{MultiHeadAttention, MultiHeadAttentionConfig, Pattern};

fn difference(a: Tensor<3>, b: Tensor<3>) -> f32 {
    (a - b).abs().max().into_scalar::<f32>()
}

#[test]
fn burn_nns_attention_is_swapped_for_ours() {
    let device = Device::flex().autodiff();
    let x = Tensor::<3>::random([2, 10, 32], Distribution::Normal(0.0, 1.0), &device);
    let theirs = TheirConfig::new(32, 4).with_dropout(0.0).init(&device);
    let record = theirs.clone().into_record();
    let mut ours: MultiHeadAttention = MultiHeadAttentionConfig::new(32, 4)
        .init(&device)
        .load_record(record);

    let expected = theirs.forward(MhaInput::self_attn(x.clone())).context;
    let pass =
        |layer: &MultiHeadAttention| layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Full);
    let off = difference(pass(&ours), expected);
    assert!(off < 1e-5, "{off}");

    let mut optimizer = AdamConfig::new().init();
    let loss = |layer: &MultiHeadAttention| (pass(layer) - x.clone()).square().mean();
    let before = loss(&ours);
    let gradients = GradientsParams::from_grads(before.backward(), &ours);
    ours = optimizer.step(1e-2, ours, gradients);
    let [before, after] = [before, loss(&ours)].map(|loss| loss.into_scalar::<f32>());
    assert!(after < before, "{before}, then {after}");
}
