//! Scaling of scores, saturation of the softmax, and how to prevent it.

use burn::tensor::Tensor;
use zoo_attention::{
    AttentionInput, AttentionOptions, Mechanism, MultiHeadAttentionConfig, flash, standard,
};
use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, normal};

/// Without the division by sqrt(d_head), the variance of scores grows with d_head.
pub(crate) fn scaling(opened: &OpenDevice) -> Outcome {
    println!("                variance of scores        largest weight of a row");
    println!("d_head          q·k    q·k/sqrt(d)          q·k    q·k/sqrt(d)");
    let mut sharpest = 0.0;
    for d_head in [4, 16, 64, 256] {
        let [query, key] = [(); 2].map(|()| normal([1, 1, 256, d_head], &opened.device));
        // The mean is zero, so the variance is the mean of the squares.
        let variance = |query: Tensor<4>| {
            let scores = query.matmul(key.clone().swap_dims(2, 3));
            scores.square().mean().into_scalar::<f32>()
        };
        let variances = [
            variance(query.clone()),
            variance(query.clone().div_scalar((d_head as f32).sqrt())),
        ];
        let largest = |options: &AttentionOptions| {
            let output = standard(query.clone(), key.clone(), key.clone(), options);
            output.into_weights().max_dim(3).mean().into_scalar::<f32>()
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
        // Without scaling, attention concentrates on one key; with it, it stays spread out.
        assert!(plain > sharpest && scaled < 0.1);
        sharpest = plain;
    }
    assert!(sharpest > 0.8);
    Ok(())
}

/// The gradient of a saturated softmax vanishes.
pub(crate) fn saturation(opened: &OpenDevice) -> Outcome {
    const KEYS: usize = 8;
    let device = &opened.device.clone().autodiff();
    let per_key = |value: fn(usize) -> f32| {
        let values: [f32; KEYS] = std::array::from_fn(value);
        Tensor::<1>::from_floats(values, device)
    };
    let scores = per_key(|i| i as f32 / 4.0).reshape([1, 1, 1, KEYS]);
    let value = per_key(|i| (i % 2) as f32).reshape([1, 1, KEYS, 1]);
    // Query and keys are zero, so the scores are the bias, which has a gradient.
    let query = Tensor::zeros([1, 1, 1, 1], device);
    let key = Tensor::zeros([1, 1, KEYS, 1], device);

    println!("score factor   largest weight   largest gradient of a score");
    let mut previous = f32::INFINITY;
    for factor in [1.0_f32, 4.0, 16.0, 64.0] {
        let bias = scores.clone().mul_scalar(factor).require_grad();
        let options = AttentionOptions::new().with_bias(bias.clone());
        let weights = standard(query.clone(), key.clone(), value.clone(), &options).into_weights();
        let context = flash(query.clone(), key.clone(), value.clone(), &options);
        let gradients = context.sum().backward();
        let gradient = bias.grad(&gradients).ok_or("no gradient")?;
        let weight = weights.max().into_scalar::<f32>();
        let gradient = gradient.abs().max().into_scalar::<f32>();
        println!("{factor:12}   {weight:14.7}   {gradient:27.1e}");
        if factor == 1.0 {
            assert!(gradient > 1e-2);
            continue;
        }
        // The largest score exceeds the next by a quarter of the factor.
        let next = (-factor / 4.0).exp();
        assert!(1.0 - weight > 0.9 * next || next < 1e-6);
        assert!(gradient > 0.0 && gradient < previous);
        previous = gradient;
    }
    assert!(previous < 1e-6);
    Ok(())
}

/// QK norm, temperature and softcap prevent saturation.
pub(crate) fn qk_norm_softcap(opened: &OpenDevice) -> Outcome {
    const D_MODEL: usize = 32;
    let hidden = normal([1, 64, D_MODEL], &opened.device);
    // One head and no biases, so that queries scale with their projection.
    let config = MultiHeadAttentionConfig::new(D_MODEL, 1)
        .with_mechanism(Mechanism::Standard)
        .with_query_bias(false)
        .with_key_bias(false);
    let largest = |config: MultiHeadAttentionConfig, factor: f64| {
        opened.device.seed(2); // the same weights each time, except for the factor
        let mut layer = config.init(&opened.device);
        layer.query.weight = layer.query.weight.map(|it| it.mul_scalar(factor));
        let output = layer.forward(AttentionInput::self_attn(hidden.clone()));
        output.into_weights().max_dim(3).mean().into_scalar::<f32>()
    };

    println!("                  largest weight of a row");
    println!("weight factor        plain     qk_norm");
    let mut rows = vec![];
    for factor in [1.0, 16.0, 256.0, 4096.0] {
        let plain = largest(config.clone(), factor);
        let normalised = largest(config.clone().with_qk_norm(true), factor);
        println!("{factor:16}   {plain:7.3}   {normalised:9.3}");
        rows.push([plain, normalised]);
    }
    let ([first, first_normalised], [last, last_normalised]) = (rows[0], rows[3]);
    assert!(first < 0.1 && last > 0.9);
    // The norm's epsilon is the only difference.
    assert!((first_normalised - last_normalised).abs() < 0.0015);

    println!("\ntemperature   largest weight of a row");
    let mut previous = f32::INFINITY;
    for temperature in [0.25, 1.0, 4.0] {
        let config = config.clone().with_temperature(temperature);
        let weight = largest(config, 16.0);
        println!("{temperature:11}   {weight:23.3}");
        assert!(weight < previous - 0.1 && weight > 1.0 / 64.0);
        previous = weight;
    }

    softcap(opened)
}

/// Gradients of another key's value and of the query, as the first key's score grows, with and
/// without softcap.
fn softcap(opened: &OpenDevice) -> Outcome {
    let device = &opened.device.clone().autodiff();
    println!("\n        weight of one key   gradient of another value     gradient of the query");
    println!("score     plain softcap 2             plain   softcap 2       plain   softcap 2");
    for score in [1.0, 4.0, 16.0, 64.0] {
        // The first key is [1], the others are [0].
        let query = Tensor::<4>::full([1, 1, 1, 1], score, device).require_grad();
        let first = Tensor::ones([1, 1, 1, 1], device);
        let others = Tensor::zeros([1, 1, 63, 1], device);
        let key = Tensor::cat(vec![first, others], 2);
        let value = key.clone().require_grad();
        let measure = |options: &AttentionOptions| {
            let [q, k, v] = [&query, &key, &value].map(Clone::clone);
            let weights = standard(q.clone(), k.clone(), v.clone(), options).into_weights();
            let gradients = flash(q, k, v, options).sum().backward();
            let min = |tensor: &Tensor<4>| tensor.grad(&gradients).map(|it| it.min().into_scalar());
            let weight: f32 = weights.max().into_scalar();
            Some::<[f32; 3]>([weight, min(&value)?, min(&query)?])
        };
        let plain = measure(&AttentionOptions::new()).ok_or("no gradient")?;
        let capped = AttentionOptions::new().with_softcap(2.0);
        let capped = measure(&capped).ok_or("no gradient")?;
        println!(
            "{score:5}   {:7.3} {:9.3}   {:15.1e} {:11.1e}   {:9.1e} {:11.1e}",
            plain[0], capped[0], plain[1], capped[1], plain[2], capped[2],
        );
        // Analytically: one score of s and 63 of 0, with s or 2·tanh(s/2).
        let capped_score = 2.0 * (score / 2.0_f64).tanh();
        let capped_slope = 1.0 - (score / 2.0).tanh().powi(2);
        for (score, slope, measured) in [(score, 1.0, plain), (capped_score, capped_slope, capped)]
        {
            let [weight, value_grad, query_grad] = measured.map(f64::from);
            let sum = score.exp() + 63.0;
            assert!((score.exp() / sum - weight).abs() < 1e-3);
            assert!((1.0 / sum - value_grad).abs() < 0.06 / sum);
            let expected = slope * 63.0 * score.exp() / sum / sum;
            // In f32, a saturated weight is 1 and its slope 0 up to about 1e-7.
            assert!((expected - query_grad).abs() < 0.06 * expected + 1e-6);
        }
    }
    Ok(())
}
