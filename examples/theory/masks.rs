//! A query that sees nothing gets nothing, and passes nothing back.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, Pattern, flash, standard};
use zoo_backend::Opened;
use zoo_examples::Outcome;

pub(crate) fn run(opened: &Opened) -> Outcome {
    println!("four scores, all hidden by      weights");
    let infinite = softmax([f32::NEG_INFINITY; 4]);
    println!("minus infinity, then softmax    {infinite:?}");
    println!("-10,000, then softmax           {:?}", softmax([-1e4; 4]));

    // Two examples of four keys; all of the second are padding.
    let device = &opened.device.clone().autodiff();
    let [query, key, value] = [(); 3].map(|()| {
        let normal = Distribution::Normal(0.0, 1.0);
        Tensor::<4>::random([2, 1, 4, 8], normal, device).require_grad()
    });
    let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([3, 0]));
    let held = standard(query.clone(), key.clone(), value.clone(), &options);
    let row = held.weights.inner().slice([1..2, 0..1, 0..1]);
    let row: Vec<f32> = row.try_into_vec_as()?;
    println!("a pattern                       {row:?}\n");

    let attend = |key: &Tensor<4>, value: &Tensor<4>| {
        flash(query.clone(), key.clone(), value.clone(), &options)
    };
    let context = attend(&key, &value);
    let gradients = context.clone().square().sum().backward();
    println!("largest of                 of one that sees three keys   of one that sees none");
    print_line("context", context.clone().inner());
    for (name, tensor) in [("query", &query), ("key", &key), ("value", &value)] {
        let gradient = tensor.grad(&gradients).ok_or("it has a gradient")?;
        print_line(&format!("gradient by {name}"), gradient);
    }
    // What is hidden can be anything: here the fourth, a thousand times as large.
    let loud = |rows: &Tensor<4>| {
        let fourth = rows.clone().slice_dim(2, 3..4).mul_scalar(1e3);
        Tensor::cat(vec![rows.clone().slice_dim(2, 0..3), fourth], 2)
    };
    for (name, changed) in [
        ("change by a hidden key", attend(&loud(&key), &value)),
        ("change by a hidden value", attend(&key, &loud(&value))),
    ] {
        print_line(name, (changed - context.clone()).inner());
    }
    Ok(())
}

/// As it is written in books, for one row.
fn softmax(scores: [f32; 4]) -> [f32; 4] {
    let largest = scores.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let exponentials = scores.map(|score| (score - largest).exp());
    let sum: f32 = exponentials.iter().sum();
    exponentials.map(|exponential| exponential / sum)
}

fn print_line(name: &str, tensor: Tensor<4>) {
    let [some, none] = [0, 1].map(|example| {
        let own = tensor.clone().slice_dim(0, example..example + 1);
        own.abs().max().into_scalar::<f32>()
    });
    println!("{name:24}   {some:<27}   {none}");
}
