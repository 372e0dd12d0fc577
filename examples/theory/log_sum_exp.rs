//! What the log-sum-exp of a query is for.

use burn::tensor::Tensor;
use zoo_attention::{AttentionOptions, Flashed, Pattern, flash_with_log_sum_exp, merge, standard};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference, normal, query_key_value};

use crate::assert_same;

/// Keys can be attended to a part at a time: the log-sum-exp says what each part weighs.
pub(crate) fn merging(opened: &Opened) -> Outcome {
    const KEYS: usize = 240;
    let draw = |places: usize| normal([1, 2, places, 16], &opened.device);
    // Large queries: some parts have far more to say to one than others have.
    let (query, key, value) = (draw(32).mul_scalar(4.0), draw(KEYS), draw(KEYS));
    let options = AttentionOptions::new();
    let whole = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &options);

    println!("         differ from all keys at once by");
    println!("parts    context, merged    log-sum-exp, merged    context, plain mean");
    for count in [2, 5, 24] {
        let size = KEYS / count;
        let parts: Vec<Flashed> = (0..count)
            .map(|part| {
                let own = part * size..(part + 1) * size;
                let [key, value] =
                    [&key, &value].map(|rows| rows.clone().slice_dim(2, own.clone()));
                flash_with_log_sum_exp(query.clone(), key, value, &options)
            })
            .collect();
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

/// What merging asks for, and what it does not mind.
fn conditions(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = query_key_value([1, 1, 8, 16], device).map(Tensor::require_grad);
    let part = |keys: std::ops::Range<usize>, options: &AttentionOptions| {
        let [key, value] = [&key, &value].map(|rows| rows.clone().slice_dim(2, keys.clone()));
        flash_with_log_sum_exp(query.clone(), key, value, options)
    };
    let all = AttentionOptions::new();
    let none = AttentionOptions::new().with_pattern(Pattern::key_lengths([0]));
    let whole = part(0..8, &all);
    let blind = part(0..8, &none);
    let largest: f32 = blind.log_sum_exp.clone().max().into_scalar();

    println!("\n                              differs from all keys at once by");
    for (name, parts) in [
        ("two parts", [part(0..5, &all), part(5..8, &all)]),
        ("a key in both", [part(0..5, &all), part(4..8, &all)]),
        ("a part that sees nothing", [part(0..8, &all), blind]),
    ] {
        let differs = difference(&merge(&parts).context, &whole.context);
        println!("{name:30}{differs:.7}");
        assert_same(name != "a key in both", differs);
    }
    let gradient = |context: Tensor<4>| key.grad(&context.square().sum().backward());
    let merged = merge(&[part(0..5, &all), part(5..8, &all)]).context;
    let [merged, whole] = [merged, whole.context].map(|it| gradient(it).ok_or("keys have one"));
    let differs = difference(&merged?, &whole?);
    println!("{:30}{differs:.7}", "gradient by keys, two parts");
    assert_same(true, differs);
    println!("log-sum-exp of a part that sees nothing: {largest:e}");
    assert!(largest < -9e29);
    Ok(())
}

/// A softmax that is computed as its numbers come: no number overflows, and one number a
/// query gives every weight again.
pub(crate) fn running(opened: &Opened) -> Outcome {
    let draw = |places: usize| normal([1, 1, places, 16], &opened.device);
    let (query, key, value) = (draw(1), draw(300), draw(300));
    println!("scores up to    sum of their exponentials    largest of a running one    differs by");
    for size in [1.0, 10.0, 100.0, 1000.0] {
        let query = query.clone().mul_scalar(size);
        let options = AttentionOptions::new();
        let scores = query.clone().matmul(key.clone().swap_dims(2, 3)) / 4.0;
        let numbers: Vec<f32> = scores.clone().try_into_vec_as()?;
        let plain: f32 = numbers.iter().map(|score| score.exp()).sum();
        let (running, largest) = log_sum_exp(&numbers);

        let flashed = flash_with_log_sum_exp(query.clone(), key.clone(), value.clone(), &options);
        let found: f32 = flashed.log_sum_exp.clone().into_scalar();
        let most = numbers.iter().copied().fold(f32::MIN, f32::max);
        let share = (running - found).abs() / most;
        println!("{most:<16.1}{plain:<29.1e}{largest:<28}{share:.7}");
        assert!(largest == 1.0 && share < 1e-5);
        assert!(size < 1000.0 || plain.is_infinite());

        // Any weight, from its score and that number.
        let again = (scores - flashed.log_sum_exp).exp();
        let held = standard(query, key.clone(), value.clone(), &options).weights;
        let differ = difference(&again, &held);
        println!("{:16}weights made again from it differ by {differ:.7}", "");
        // A score of 1,000 has a last digit of 6e-5, and so has its weight.
        assert!(differ < 1e-3);
    }
    Ok(())
}

/// The recurrence of the page, a score at a time; and the largest exponential it took.
fn log_sum_exp(scores: &[f32]) -> (f32, f32) {
    let (mut most, mut sum, mut largest) = (f32::MIN, 0.0, 0.0f32);
    for score in scores {
        let now = most.max(*score);
        let (shrink, new) = ((most - now).exp(), (score - now).exp());
        sum = shrink * sum + new;
        (most, largest) = (now, largest.max(shrink).max(new));
    }
    (most + sum.ln(), largest)
}
