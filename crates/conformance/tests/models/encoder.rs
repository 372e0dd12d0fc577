//! The Transformer encoder with the weights of burn-nn, and with other mechanisms.

use burn::nn::transformer::{
    TransformerEncoder as Theirs, TransformerEncoderConfig as TheirConfig, TransformerEncoderInput,
};
use burn::tensor::Bool;
use zoo_attention::Pattern;
use zoo_models::weights::import;
use zoo_models::{TransformerEncoder, TransformerEncoderConfig};

use crate::support::*;

/// burn-nn's encoder, and ours with its weights.
fn both(norm: Norm, device: &Device) -> (Theirs, TransformerEncoder) {
    let theirs = TheirConfig::new(8, 12, 2, 2)
        .with_norm_first(norm == Norm::Pre)
        .with_dropout(0.0)
        .init(device);
    let theirs = with_random_weights(theirs, 3);
    let weights = must(import::burn_encoder(Weights::from_model(&theirs), norm));
    let ours = TransformerEncoderConfig::new(8, 12, 2, 2)
        .with_norm(norm)
        .with_dropout(0.0)
        .init(device);
    (theirs, must(weights.apply(ours)))
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("matches-burn-nn", |device| {
        let device = &device.clone().autodiff();
        for norm in [Norm::Pre, Norm::Post] {
            let (theirs, ours) = both(norm, device);
            let [x, output_grad] = [(); 2].map(|()| random_normal([2, 7, 8], device));
            let with_gradient = |pass: &dyn Fn(Tensor<3>) -> Tensor<3>| {
                let x = x.clone().require_grad();
                let y = pass(x.clone());
                let gradients = (y.clone() * output_grad.clone()).sum().backward();
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
                assert_close(got.0, want.0);
                assert_close(got.1, want.1);
            }
        }
    }),
    ("norms-are-imported-by-position", |device| {
        let (theirs, _) = both(Norm::Pre, device);
        let weights = Weights::from_model(&theirs);
        let gamma = |norm: Norm| {
            let weights = must(import::burn_encoder(weights.clone(), norm));
            weights.get("layers.1.attention_norm.gamma").cloned()
        };
        for (norm, key) in [
            (Norm::Pre, "layers.1.norm_2.gamma"),
            (Norm::Post, "layers.1.norm_1.gamma"),
        ] {
            assert_eq!(gamma(norm).as_ref(), weights.get(key));
        }
    }),
    ("other-mechanisms", |device| {
        let config = TransformerEncoderConfig::new(8, 12, 2, 2)
            .with_dropout(0.0)
            .with_final_norm(true)
            .with_positions(PositionEncoding::rotary(10_000.0));
        let encoder = |mechanism: Mechanism| {
            let encoder = config.clone().with_mechanism(mechanism).init(device);
            with_random_weights(encoder, 5)
        };
        let x = random_normal([2, 7, 8], device);
        let pass = |mechanism| encoder(mechanism).forward(x.clone(), Pattern::Full);
        let standard = pass(Mechanism::Standard);
        assert_close(pass(Mechanism::Flash), standard.clone());
        let other = pass(Mechanism::Linear);
        let difference = (other - standard).abs().max().into_scalar::<f32>();
        assert!(difference > 1e-3, "largest difference {difference}");
    }),
];
