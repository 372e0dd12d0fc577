//! Scores that grow, what a softmax makes of them, and what keeps attention from being too sure.

use burn::tensor::Tensor;
use zoo_attention::{
    AttentionOptions, Mechanism, MultiHeadAttentionConfig, Pattern, flash, standard,
};
use zoo_backend::Opened;
use zoo_examples::{Outcome, normal};

/// Why scores are divided by the root of d_head: without that, they grow with it.
pub(crate) fn scaling(opened: &Opened) -> Outcome {
    println!("                variance of scores        largest weight of a row");
    println!("d_head          q·k    q·k/sqrt(d)          q·k    q·k/sqrt(d)");
    for d_head in [4, 16, 64, 256] {
        let [query, key] = [(); 2].map(|()| normal([1, 1, 256, d_head], &opened.device));
        // Their mean is zero: the variance is the mean of the squares.
        let variance = |query: Tensor<4>| {
            let products = query.matmul(key.clone().swap_dims(2, 3));
            products.square().mean().into_scalar::<f32>()
        };
        let variances = [
            variance(query.clone()),
            variance(query.clone().div_scalar((d_head as f32).sqrt())),
        ];
        let largest = |options: &AttentionOptions| {
            let attended = standard(query.clone(), key.clone(), key.clone(), options);
            attended.weights.max_dim(3).mean().into_scalar::<f32>()
        };
        let plain = largest(&AttentionOptions::new().with_scale(1.0));
        let scaled = largest(&AttentionOptions::new());
        println!(
            "{d_head:6}   {:10.2}     {:10.2}   {plain:10.3}     {scaled:10.3}",
            variances[0], variances[1],
        );
    }
    Ok(())
}

/// A softmax that is sure of one key passes nothing back: its gradient vanishes.
pub(crate) fn saturation(opened: &Opened) -> Outcome {
    const KEYS: usize = 8;
    let device = &opened.device.clone().autodiff();
    let of_keys = |number: fn(usize) -> f32| {
        let numbers: [f32; KEYS] = std::array::from_fn(number);
        Tensor::<1>::from_floats(numbers, device)
    };
    // What differs is how much scores are multiplied by.
    let scores = of_keys(|at| at as f32 / 4.0).reshape([1, 1, 1, KEYS]);
    let value = of_keys(|at| (at % 2) as f32).reshape([1, 1, KEYS, 1]);
    // A query and keys of zeros: the scores are a bias alone, which has a gradient.
    let query = Tensor::zeros([1, 1, 1, 1], device);
    let key = Tensor::zeros([1, 1, KEYS, 1], device);

    println!("scores times   largest weight   largest gradient by a score");
    for factor in [1.0, 4.0, 16.0, 64.0] {
        let bias = scores.clone().mul_scalar(factor).require_grad();
        let options = AttentionOptions::new().with_bias(bias.clone());
        let weights = standard(query.clone(), key.clone(), value.clone(), &options).weights;
        let context = flash(query.clone(), key.clone(), value.clone(), &options);
        let gradients = context.sum().backward();
        let gradient = bias.grad(&gradients).ok_or("scores have a gradient")?;
        println!(
            "{factor:12}   {:14.7}   {:27.1e}",
            weights.max().into_scalar::<f32>(),
            gradient.abs().max().into_scalar::<f32>(),
        );
    }
    Ok(())
}

/// What keeps attention from being too sure: scores that cannot grow, or that are divided.
pub(crate) fn restraint(opened: &Opened) -> Outcome {
    const WIDTH: usize = 32;
    let hidden = normal([1, 64, WIDTH], &opened.device);
    // One head, and no biases: queries and keys grow with the matrices they are made by.
    let config = MultiHeadAttentionConfig::new(WIDTH, 1)
        .with_mechanism(Mechanism::Standard.into())
        .with_query_bias(false)
        .with_key_bias(false);
    let largest = |config: MultiHeadAttentionConfig, factor: f64| {
        opened.device.seed(2); // the same matrices each time, but for the factor
        let mut layer = config.init(&opened.device);
        layer.query.weight = layer.query.weight.map(|it| it.mul_scalar(factor));
        let [query, key, value] = [(); 3].map(|()| hidden.clone());
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
        let others = Tensor::zeros([1, 1, 63, 1], device);
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
