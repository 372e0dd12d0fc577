//! Layers from vectors to vectors: burn-nn's, with its own weights, and with other mechanisms.

use burn::nn::transformer::{
    TransformerEncoder as Theirs, TransformerEncoderConfig as TheirConfig, TransformerEncoderInput,
};
use burn::tensor::{Bool, Device, Distribution, Tensor};
use libtest_mimic::Failed;
use zoo_attention::{Mechanism, Pattern};
use zoo_conformance::Test;
use zoo_models::weights::{Weights, import};
use zoo_models::{Norm, PositionEncoding, TransformerEncoder, TransformerEncoderConfig};

use crate::drawn::drawn;
use crate::support::{equal, same};

/// burn-nn's, and ours with its weights.
fn both(norm: Norm, device: &Device) -> Result<(Theirs, TransformerEncoder), Failed> {
    let theirs = TheirConfig::new(8, 12, 2, 2)
        .with_norm_first(norm == Norm::Pre)
        .with_dropout(0.0)
        .init(device);
    let theirs = drawn(theirs, 3);
    let weights = import::burn_encoder(Weights::of(&theirs), norm)?;
    let ours = TransformerEncoderConfig::new(8, 12, 2, 2)
        .with_norm(norm)
        .with_dropout(0.0)
        .init(device);
    Ok((theirs, weights.apply(ours)?))
}

fn places(device: &Device) -> Tensor<3> {
    Tensor::random([2, 7, 8], Distribution::Normal(0.0, 1.0), device)
}

pub(crate) const TESTS: &[(&str, Test)] = &[
    ("is-that-of-burn-nn-with-its-weights", |device| {
        let device = &device.clone().autodiff();
        for norm in [Norm::Pre, Norm::Post] {
            let (theirs, ours) = both(norm, device)?;
            let x = places(device);
            let upstream = places(device);
            // The gradient by what went in has gone through all of it.
            let with_gradient = |pass: &dyn Fn(Tensor<3>) -> Tensor<3>| {
                let x = x.clone().require_grad();
                let y = pass(x.clone());
                let gradients = (y.clone() * upstream.clone()).sum().backward();
                let gradient = x.grad(&gradients).ok_or("no gradient")?;
                Ok::<_, Failed>((y.inner(), gradient))
            };
            let padding = Tensor::<2, Bool>::from_data(
                [[false; 7], [false, false, false, false, false, true, true]],
                device,
            );
            let causal = Tensor::<3, Bool>::tril_mask([2, 7, 7], 0, device);
            let input = |x| TransformerEncoderInput::new(x);
            for (want, got) in [
                (
                    with_gradient(&|x| theirs.forward(input(x)))?,
                    with_gradient(&|x| ours.forward(x, Pattern::Full))?,
                ),
                (
                    with_gradient(&|x| theirs.forward(input(x).mask_pad(padding.clone())))?,
                    with_gradient(&|x| ours.forward(x, Pattern::KeyPadding(padding.clone())))?,
                ),
                (
                    with_gradient(&|x| theirs.forward(input(x).mask_attn(causal.clone())))?,
                    with_gradient(&|x| ours.forward(x, Pattern::Causal))?,
                ),
            ] {
                same(got.0, want.0)?;
                same(got.1, want.1)?;
            }
        }
        Ok(())
    }),
    ("the-norms-are-not-confused", |device| {
        let (theirs, _) = both(Norm::Pre, device)?;
        let weights = Weights::of(&theirs);
        let of_norm = |norm: Norm| {
            let weights = import::burn_encoder(weights.clone(), norm)?;
            Ok::<_, Failed>(weights.get("layers.1.attention_norm.gamma").cloned())
        };
        equal(
            of_norm(Norm::Pre)?.as_ref(),
            weights.get("layers.1.norm_2.gamma"),
        )?;
        equal(
            of_norm(Norm::Post)?.as_ref(),
            weights.get("layers.1.norm_1.gamma"),
        )
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
        let x = places(device);
        let pass = |mechanism| encoder(mechanism).forward(x.clone(), Pattern::Full);
        let standard = pass(Mechanism::Standard);
        same(pass(Mechanism::Flash), standard.clone())?;
        let other = pass(Mechanism::Linear);
        let far = (other - standard).abs().max().into_scalar::<f32>();
        assert!(far > 1e-3, "linear attention gives the same but for {far}");
        Ok(())
    }),
];
