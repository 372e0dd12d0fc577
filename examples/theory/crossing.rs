//! Attention from one sequence to another: as many results as queries, and a memory that is
//! read once.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{Mechanism, MultiHeadAttentionConfig, Pattern};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};
use zoo_models::{ModelError, TransformerConfig};

const D_MODEL: usize = 32;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device;
    let draw = |places: usize| {
        Tensor::<3>::random([1, places, D_MODEL], Distribution::Normal(0.0, 1.0), device)
    };
    let layer = MultiHeadAttentionConfig::new(D_MODEL, 4).init(device);
    let x = draw(24);
    println!("memory of    results        one by one, remembered once, differ by");
    for places in [7, 31] {
        let y = draw(places);
        let results = layer.forward(x.clone(), y.clone(), y.clone(), Pattern::Full);
        let memory = layer.remember(y.clone(), y);
        let steps = (0..24).map(|at| {
            let place = x.clone().slice_dim(1, at..at + 1);
            layer.recall(place, &memory, Pattern::Full)
        });
        let steps = Tensor::cat(steps.collect(), 1);
        let shape = format!("{:?}", results.dims());
        println!("{places:<13}{shape:<15}{:.7}", difference(&steps, &results));
    }

    println!("\nbetween an encoder and a decoder");
    for mechanism in Mechanism::ALL {
        let config = TransformerConfig::base(100, 100);
        let config = config.with_cross_attention(mechanism.into());
        let answer = match config.check() {
            Ok(()) => "can".to_owned(),
            Err(ModelError::Mechanism { reason, .. }) => format!("cannot: {reason}"),
            Err(other) => return Err(other.into()),
        };
        println!("{:18}{answer}", mechanism.word());
    }
    Ok(())
}
