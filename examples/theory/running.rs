//! A softmax that is computed as its numbers come: no number overflows, and one number a
//! query gives every weight again.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, flash_with_log_sum_exp, standard};
use zoo_backend::Opened;
use zoo_examples::{Outcome, difference};

const KEYS: usize = 300;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let draw = |places: usize| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([1, 1, places, 16], normal, &opened.device)
    };
    let (query, key, value) = (draw(1), draw(KEYS), draw(KEYS));
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
        let most = numbers
            .iter()
            .fold(f32::MIN, |most, score| most.max(*score));
        println!(
            "{most:<16.1}{plain:<29.1e}{largest:<28}{:.7}",
            (running - found).abs() / most
        );

        // Any weight, from its score and that number.
        let again = (scores - flashed.log_sum_exp).exp();
        let held = standard(query, key.clone(), value.clone(), &options).weights;
        println!(
            "{:16}weights made again from it differ by {:.7}",
            "",
            difference(&again, &held)
        );
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
