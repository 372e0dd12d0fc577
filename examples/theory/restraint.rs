//! What keeps attention from being too sure: scores that cannot grow, or that are divided.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{
    AttentionOptions, Mechanism, MultiHeadAttentionConfig, Pattern, flash, standard,
};
use zoo_backend::Opened;
use zoo_examples::Outcome;

const PLACES: usize = 64;
const WIDTH: usize = 32;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let normal = Distribution::Normal(0.0, 1.0);
    let places = Tensor::<3>::random([1, PLACES, WIDTH], normal, &opened.device);
    // One head, and no biases: queries and keys grow with the matrices they are made by.
    let config = MultiHeadAttentionConfig::new(WIDTH, 1)
        .with_mechanism(Mechanism::Standard.into())
        .with_query_bias(false)
        .with_key_bias(false);
    let largest = |config: MultiHeadAttentionConfig, factor: f64| {
        opened.device.seed(2); // the same matrices each time, but for the factor
        let mut layer = config.init(&opened.device);
        layer.query.weight = layer.query.weight.map(|it| it.mul_scalar(factor));
        let [query, key, value] = [(); 3].map(|()| places.clone());
        let looked = layer.forward_with_weights(query, key, value, Pattern::Full);
        looked.map(|(_, weights)| weights.max_dim(3).mean().into_scalar::<f32>())
    };

    println!("                  largest weight of a row");
    println!("projection times     plain     qk_norm");
    for factor in [1.0, 16.0, 256.0, 4096.0] {
        let plain = largest(config.clone(), factor)?;
        let normalised = largest(config.clone().with_qk_norm(true), factor)?;
        println!("{factor:16}   {plain:7.3}   {normalised:9.3}");
    }

    println!("\ntemperature   largest weight of a row");
    for temperature in [0.25, 1.0, 4.0] {
        let config = config.clone().with_temperature(temperature);
        println!("{temperature:11}   {:23.3}", largest(config, 16.0)?);
    }

    capped(opened)
}

/// Queries that find the first key, ever more surely: what arrives at the value of another key,
/// and at the query.
fn capped(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    println!("\n        weight of one key   gradient at another's value   gradient at the query");
    println!("score     plain softcap 2             plain   softcap 2       plain   softcap 2");
    for score in [1.0, 4.0, 16.0, 64.0] {
        // The first key is [1], the others are [0].
        let query = Tensor::<4>::full([1, 1, 1, 1], score, device).require_grad();
        let first = Tensor::ones([1, 1, 1, 1], device);
        let others = Tensor::zeros([1, 1, PLACES - 1, 1], device);
        let key = Tensor::cat(vec![first, others], 2);
        let value = key.clone().require_grad();
        let of = |options: &AttentionOptions| {
            let [q, k, v] = [&query, &key, &value].map(Clone::clone);
            let weights = standard(q.clone(), k.clone(), v.clone(), options).weights;
            let gradients = flash(q, k, v, options).sum().backward();
            let at = |tensor: &Tensor<4>| tensor.grad(&gradients).map(|it| it.min().into_scalar());
            let weight: f32 = weights.max().into_scalar();
            Some::<(f32, f32, f32)>((weight, at(&value)?, at(&query)?))
        };
        let plain = of(&AttentionOptions::new()).ok_or("gradients")?;
        let capped = of(&AttentionOptions::new().with_softcap(2.0)).ok_or("gradients")?;
        println!(
            "{score:5}   {:7.3} {:9.3}   {:15.1e} {:11.1e}   {:9.1e} {:11.1e}",
            plain.0, capped.0, plain.1, capped.1, plain.2, capped.2,
        );
    }
    Ok(())
}
