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
    let mut sharpest = 0.0;
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
        // Means over 256 queries and 256 keys: they deviate by 0.065 at d_head 4, and by less above.
        let relative = [variances[0] / d_head as f32, variances[1]];
        assert!(relative.iter().all(|variance| (variance - 1.0).abs() < 0.3));
        // Without scaling, attention comes down to one key; with it, it stays spread out.
        assert!(plain > sharpest && scaled < 0.1);
        sharpest = plain;
    }
    assert!(sharpest > 0.8);
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
    let mut before = f32::INFINITY;
    for factor in [1.0_f32, 4.0, 16.0, 64.0] {
        let bias = scores.clone().mul_scalar(factor).require_grad();
        let options = AttentionOptions::new().with_bias(bias.clone());
        let weights = standard(query.clone(), key.clone(), value.clone(), &options).weights;
        let context = flash(query.clone(), key.clone(), value.clone(), &options);
        let gradients = context.sum().backward();
        let gradient = bias.grad(&gradients).ok_or("scores have a gradient")?;
        let weight = weights.max().into_scalar::<f32>();
        let gradient = gradient.abs().max().into_scalar::<f32>();
        println!("{factor:12}   {weight:14.7}   {gradient:27.1e}");
        if factor == 1.0 {
            assert!(gradient > 1e-2);
            continue;
        }
        // The largest score is a quarter of the factor above the next.
        let next = (-factor / 4.0).exp();
        assert!(1.0 - weight > 0.9 * next || next < 1e-6);
        assert!(gradient > 0.0 && gradient < before);
        before = gradient;
    }
    assert!(before < 1e-6);
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
    let mut rows = vec![];
    for factor in [1.0, 16.0, 256.0, 4096.0] {
        let plain = largest(config.clone(), factor)?;
        let normalised = largest(config.clone().with_qk_norm(true), factor)?;
        println!("{factor:16}   {plain:7.3}   {normalised:9.3}");
        rows.push([plain, normalised]);
    }
    let ([first, normalised], [last, still]) = (rows[0], rows[3]);
    assert!(first < 0.1 && last > 0.9);
    // Nothing but the norm's own epsilon.
    assert!((normalised - still).abs() < 0.0015);

    println!("\ntemperature   largest weight of a row");
    let mut sharper = f32::INFINITY;
    for temperature in [0.25, 1.0, 4.0] {
        let config = config.clone().with_temperature(temperature);
        let weight = largest(config, 16.0)?;
        println!("{temperature:11}   {weight:23.3}");
        assert!(weight < sharper - 0.1 && weight > 1.0 / 64.0);
        sharper = weight;
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
            Some::<[f32; 3]>([weight, at(&value)?, at(&query)?])
        };
        let plain = of(&AttentionOptions::new()).ok_or("gradients")?;
        let capped = of(&AttentionOptions::new().with_softcap(2.0)).ok_or("gradients")?;
        println!(
            "{score:5}   {:7.3} {:9.3}   {:15.1e} {:11.1e}   {:9.1e} {:11.1e}",
            plain[0], capped[0], plain[1], capped[1], plain[2], capped[2],
        );
        // By hand: one score of s and 63 of 0, with s or 2·tanh(s/2).
        let bent = 2.0 * (score / 2.0_f64).tanh();
        let flatter = 1.0 - (score / 2.0).tanh().powi(2);
        for (score, slope, found) in [(score, 1.0, plain), (bent, flatter, capped)] {
            let [weight, at_another, at_query] = found.map(f64::from);
            let sum = score.exp() + 63.0;
            assert!((score.exp() / sum - weight).abs() < 1e-3);
            assert!((1.0 / sum - at_another).abs() < 0.06 / sum);
            let by_hand = slope * 63.0 * score.exp() / sum / sum;
            // In f32 a sure weight is 1, and a flat slope 0, to about 1e-7.
            assert!((by_hand - at_query).abs() < 0.06 * by_hand + 1e-6);
        }
    }
    Ok(())
}
