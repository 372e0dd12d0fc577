//! Layers from vectors to vectors: burn-nn's, with its own weights, and with other mechanisms.

use burn::nn::transformer::{
    TransformerEncoder as Theirs, TransformerEncoderConfig as TheirConfig, TransformerEncoderInput,
};
use burn::tensor::{Bool, Device, Tensor};
use zoo_attention::{Mechanism, Pattern};
use zoo_models::weights::{Weights, import};
use zoo_models::{Norm, PositionEncoding, TransformerEncoder, TransformerEncoderConfig};

use crate::support::*;

/// burn-nn's, and ours with its weights.
fn both(norm: Norm, device: &Device) -> (Theirs, TransformerEncoder) {
    let theirs = TheirConfig::new(8, 12, 2, 2)
        .with_norm_first(norm == Norm::Pre)
        .with_dropout(0.0)
        .init(device);
    let theirs = drawn(theirs, 3);
    let weights = must(import::burn_encoder(Weights::of(&theirs), norm));
    let ours = TransformerEncoderConfig::new(8, 12, 2, 2)
        .with_norm(norm)
        .with_dropout(0.0)
        .init(device);
    (theirs, must(weights.apply(ours)))
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("is-that-of-burn-nn-with-its-weights", |device| {
        let device = &device.clone().autodiff();
        for norm in [Norm::Pre, Norm::Post] {
            let (theirs, ours) = both(norm, device);
            let [x, upstream] = [(); 2].map(|()| normal([2, 7, 8], device));
            // The gradient by what went in has gone through all of it.
            let with_gradient = |pass: &dyn Fn(Tensor<3>) -> Tensor<3>| {
                let x = x.clone().require_grad();
                let y = pass(x.clone());
                let gradients = (y.clone() * upstream.clone()).sum().backward();
                let gradient = x.grad(&gradients).expect("no gradient");
                (y.inner(), gradient)
            };
            let padding = [[false; 7], [false, false, false, false, false, true, true]];
            let padding = Tensor::<2, Bool>::from_data(padding, device);
            let causal = Tensor::<3, Bool>::tril_mask([2, 7, 7], 0, device);
            type Input = TransformerEncoderInput;
            let padded = |input: Input| input.mask_pad(padding.clone());
            let masked = |input: Input| input.mask_attn(causal.clone());
            let pairs: [(&dyn Fn(Input) -> Input, Pattern); 3] = [
                (&|input| input, Pattern::Full),
                (&padded, Pattern::KeyPadding(padding.clone())),
                (&masked, Pattern::Causal),
            ];
            for (mask, pattern) in pairs {
                let want = with_gradient(&|x| theirs.forward(mask(Input::new(x))));
                let got = with_gradient(&|x| ours.forward(x, pattern.clone()));
                same(got.0, want.0);
                same(got.1, want.1);
            }
        }
    }),
    ("the-norms-are-not-confused", |device| {
        let (theirs, _) = both(Norm::Pre, device);
        let weights = Weights::of(&theirs);
        let of_norm = |norm: Norm| {
            let weights = must(import::burn_encoder(weights.clone(), norm));
            weights.get("layers.1.attention_norm.gamma").cloned()
        };
        for (norm, key) in [
            (Norm::Pre, "layers.1.norm_2.gamma"),
            (Norm::Post, "layers.1.norm_1.gamma"),
        ] {
            assert_eq!(of_norm(norm).as_ref(), weights.get(key));
        }
    }),
    ("a-mechanism-is-a-word", |device| {
        let config = TransformerEncoderConfig::new(8, 12, 2, 2)
            .with_dropout(0.0)
            .with_final_norm(true)
            .with_positions(PositionEncoding::rotary(10_000.0));
        let encoder = |mechanism: Mechanism| {
            let made = config.clone().with_mechanism(mechanism.into()).init(device);
            drawn(made, 5)
        };
        let x = normal([2, 7, 8], device);
        let pass = |mechanism| encoder(mechanism).forward(x.clone(), Pattern::Full);
        let standard = pass(Mechanism::Standard);
        same(pass(Mechanism::Flash), standard.clone());
        let other = pass(Mechanism::Linear);
        let far = (other - standard).abs().max().into_scalar::<f32>();
        assert!(far > 1e-3, "linear attention gives the same but for {far}");
    }),
];
