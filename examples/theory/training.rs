//! What is drawn while a layer learns is drawn nowhere else.

use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::mechanisms::Performer;
use zoo_attention::{Mechanism, MechanismConfig, MultiHeadAttentionConfig, Pattern};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

const D_MODEL: usize = 32;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let plain = &opened.device;
    let learning = &plain.clone().autodiff();
    let config = MultiHeadAttentionConfig::new(D_MODEL, 4);
    let redrawn = MechanismConfig::Performer(Performer {
        features: 32,
        seed: 0,
        redraw: Some(1),
    });

    println!("                              two passes differ by, on a device");
    println!("                              that takes gradients    that does not");
    for (name, config) in [
        ("no dropout", config.clone()),
        ("dropout", config.clone().with_dropout(0.5)),
        (
            "hard",
            config.clone().with_mechanism(Mechanism::Hard.into()),
        ),
        (
            "performer, features redrawn",
            config.with_mechanism(redrawn),
        ),
    ] {
        let [drawn, fixed] = [learning, plain].map(|device| twice(&config, device));
        println!("{name:30}{drawn:<24.7}{fixed:.7}");
    }
    Ok(())
}

/// How far two passes of one layer over one text are apart.
fn twice(config: &MultiHeadAttentionConfig, device: &Device) -> f32 {
    let layer = config.init(device);
    let x = Tensor::<3>::random([1, 16, D_MODEL], Distribution::Normal(0.0, 1.0), device);
    let pass = || layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Full);
    difference(&pass(), &pass())
}
