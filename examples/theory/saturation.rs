//! A softmax that is sure of one key passes nothing back: its gradient vanishes.

use burn::tensor::Tensor;
use zoo_attention::{AttentionOptions, flash, standard};
use zoo_backend::Opened;
use zoo_examples::Outcome;

const KEYS: usize = 8;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    // Scores 0, 1/4, 1/2, ...; what differs is how much they are multiplied by.
    let scores = Tensor::<1>::from_floats(
        std::array::from_fn::<f32, KEYS, _>(|at| at as f32 / 4.0),
        device,
    );
    let scores = scores.reshape([1, 1, 1, KEYS]);
    // Values 0 and 1 in turn.
    let value = Tensor::<1>::from_floats(
        std::array::from_fn::<f32, KEYS, _>(|at| (at % 2) as f32),
        device,
    );
    let value = value.reshape([1, 1, KEYS, 1]);
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
