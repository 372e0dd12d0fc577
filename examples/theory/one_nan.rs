//! One row that sees nothing, hidden by minus infinity, and a model is lost in one step.

use burn::tensor::activation::softmax;
use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, Pattern, flash};
use zoo_backend::Opened;
use zoo_examples::Outcome;

pub(crate) fn run(opened: &Opened) -> Outcome {
    let device = &opened.device.clone().autodiff();
    let normal = Distribution::Normal(0.0, 1.0);
    // Two examples of four places; the second one's keys are all hidden.
    let x = Tensor::<4>::random([2, 1, 4, 8], normal, device);
    let infinite = |query: Tensor<4>| {
        let hidden = Tensor::<2>::from_floats([[0.0; 4], [f32::NEG_INFINITY; 4]], device);
        let scores = query.matmul(x.clone().swap_dims(2, 3)) + hidden.reshape([2, 1, 1, 4]);
        softmax(scores, 3).matmul(x.clone())
    };
    let pattern = |query: Tensor<4>| {
        let options = AttentionOptions::new().with_pattern(Pattern::key_lengths([4, 0]));
        flash(query, x.clone(), x.clone(), &options)
    };

    println!("hidden by          of 64 numbers, not numbers after one step");
    let ways: [(&str, &dyn Fn(Tensor<4>) -> Tensor<4>); 2] =
        [("minus infinity", &infinite), ("a pattern", &pattern)];
    for (name, attend) in ways {
        // What makes queries of places, and learns.
        let matrix = Tensor::<2>::random([8, 8], normal, device).require_grad();
        let query = x.clone().matmul(matrix.clone().unsqueeze());
        let gradients = attend(query).sum().backward();
        let gradient = matrix.grad(&gradients).ok_or("it has a gradient")?;
        let learned = matrix.inner() - gradient.mul_scalar(0.1);
        let lost = learned.is_nan().int().sum().into_scalar::<i32>();
        println!("{name:19}{lost}");
    }
    Ok(())
}
