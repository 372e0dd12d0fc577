//! Uses of the log-sum-exp of a query.

use std::ops::Range;

use burn::tensor::Tensor;
use zoo_attention::flash::{FlashOutput, flash_with_log_sum_exp, merge};
use zoo_attention::{AttentionOptions, Pattern, standard};
use zoo_backend::OpenDevice;
use zoo_examples::{Outcome, difference, normal, query_key_value};

use crate::assert_same;

fn attend(
    [query, key, value]: [&Tensor<4>; 3],
    keys: Range<usize>,
    options: &AttentionOptions,
) -> FlashOutput {
    let [key, value] = [key, value].map(|rows| rows.clone().slice_dim(2, keys.clone()));
    flash_with_log_sum_exp(query.clone(), key, value, options)
}

/// Attention over parts of the keys merges exactly, weighted by the log-sum-exp of each part.
pub(crate) fn split_kv(opened: &OpenDevice) -> Outcome {
    const KEYS: usize = 240;
    let random = |seq: usize| normal([1, 2, seq, 16], &opened.device);
    // Large queries, so that the weights of the parts differ strongly.
    let (query, key, value) = (random(32).mul_scalar(4.0), random(KEYS), random(KEYS));
    let options = AttentionOptions::new();
    let part = |keys: Range<usize>| attend([&query, &key, &value], keys, &options);
    let whole = part(0..KEYS);

    println!("         differ from all keys at once by");
    println!("parts    context, merged    log-sum-exp, merged    context, plain mean");
    for count in [2, 5, 24] {
        let size = KEYS / count;
        let parts = (0..count).map(|i| part(i * size..(i + 1) * size));
        let parts: Vec<FlashOutput> = parts.collect();
        let merged = merge(&parts);
        let contexts = parts.into_iter().map(|part| part.context).collect();
        let mean = Tensor::cat(contexts, 0).mean_dim(0);
        let context = difference(&merged.context, &whole.context);
        let log_sum_exp = difference(&merged.log_sum_exp, &whole.log_sum_exp);
        let plain = difference(&mean, &whole.context);
        println!("{count:<9}{context:<19.7}{log_sum_exp:<23.7}{plain:.7}");
        // A log-sum-exp is a few tens here: its last digit is about 1e-6.
        assert!(context < 1e-4 && log_sum_exp < 1e-4 && plain > 0.1);
    }
    conditions(opened)
}

/// Preconditions of merging: disjoint parts; fully masked parts are allowed.
fn conditions(opened: &OpenDevice) -> Outcome {
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = query_key_value([1, 1, 8, 16], device).map(Tensor::require_grad);
    let part = |keys: Range<usize>, options| attend([&query, &key, &value], keys, options);
    let all = AttentionOptions::new();
    let none = AttentionOptions::new().with_pattern(Pattern::key_lengths([0]));
    let whole = part(0..8, &all);
    let masked = part(0..8, &none);
    let largest: f32 = masked.log_sum_exp.clone().max().into_scalar();

    println!("\n                              differs from all keys at once by");
    for (name, parts) in [
        ("two parts", [part(0..5, &all), part(5..8, &all)]),
        ("a key in both", [part(0..5, &all), part(4..8, &all)]),
        ("a fully masked part", [part(0..8, &all), masked]),
    ] {
        let differs = difference(&merge(&parts).context, &whole.context);
        println!("{name:30}{differs:.7}");
        assert_same(name != "a key in both", differs);
    }
    let gradient = |context: Tensor<4>| key.grad(&context.square().sum().backward());
    let merged = merge(&[part(0..5, &all), part(5..8, &all)]).context;
    let [merged, whole] = [merged, whole.context].map(|it| gradient(it).ok_or("no gradient"));
    let differs = difference(&merged?, &whole?);
    println!("{:30}{differs:.7}", "gradient of keys, two parts");
    assert_same(true, differs);
    println!("log-sum-exp of a fully masked part: {largest:e}");
    assert!(largest < -9e29);
    Ok(())
}

/// Online softmax: no intermediate value overflows, and the log-sum-exp of a query recomputes its
/// weights.
pub(crate) fn online_softmax(opened: &OpenDevice) -> Outcome {
    let random = |seq: usize| normal([1, 1, seq, 16], &opened.device);
    let (query, key, value) = (random(1), random(300), random(300));
    println!("max score       sum of exponentials          largest term, online        difference");
    for size in [1.0, 10.0, 100.0, 1000.0] {
        let query = query.clone().mul_scalar(size);
        let options = AttentionOptions::new();
        let scores = query.clone().matmul(key.clone().swap_dims(2, 3)) / 4.0;
        let values: Vec<f32> = scores.clone().try_into_vec_as()?;
        let plain: f32 = values.iter().map(|score| score.exp()).sum();
        let (online, largest) = log_sum_exp(&values);

        let output = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &options);
        let flash: f32 = output.log_sum_exp.clone().into_scalar();
        let max = values.iter().copied().fold(f32::MIN, f32::max);
        let relative = (online - flash).abs() / max;
        println!("{max:<16.1}{plain:<29.1e}{largest:<28}{relative:.7}");
        assert!(largest == 1.0 && relative < 1e-5);
        assert!(size < 1000.0 || plain.is_infinite());

        let recomputed = (scores - output.log_sum_exp).exp();
        let materialized = standard(query, key.clone(), value.clone(), &options).into_weights();
        let differ = difference(&recomputed, &materialized);
        println!("{:16}weights recomputed from it differ by {differ:.7}", "");
        // The last digit of a score of 1,000 is 6e-5, and so is that of its weight.
        assert!(differ < 1e-3);
    }
    Ok(())
}

/// The recurrence of docs/theory, score by score; and the largest exponential it computed.
fn log_sum_exp(scores: &[f32]) -> (f32, f32) {
    let (mut max, mut sum, mut largest) = (f32::MIN, 0.0, 0.0f32);
    for score in scores {
        let new_max = max.max(*score);
        let (rescale, term) = ((max - new_max).exp(), (score - new_max).exp());
        sum = rescale * sum + term;
        (max, largest) = (new_max, largest.max(rescale).max(term));
    }
    (max + sum.ln(), largest)
}
