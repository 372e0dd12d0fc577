//! Why scores are divided by the root of d_head: without that, they grow with it.

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, standard};
use zoo_backend::Opened;
use zoo_examples::Outcome;

const PLACES: usize = 256;

pub(crate) fn run(opened: &Opened) -> Outcome {
    println!("                variance of scores        largest weight of a row");
    println!("d_head          q·k    q·k/sqrt(d)          q·k    q·k/sqrt(d)");
    for d_head in [4, 16, 64, 256] {
        let [query, key] = [(); 2].map(|()| {
            let normal = Distribution::Normal(0.0, 1.0);
            Tensor::<4>::random([1, 1, PLACES, d_head], normal, &opened.device)
        });
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
