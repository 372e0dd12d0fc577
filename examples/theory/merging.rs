//! Keys can be attended to a part at a time: the log-sum-exp says what each part weighs.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin theory_merging
//! ```

use std::error::Error;
use std::process::ExitCode;

use burn::tensor::{Distribution, Tensor};
use zoo_attention::{AttentionOptions, Flashed, flash_with_log_sum_exp, merge};
use zoo_backend::Opened;

const KEYS: usize = 240;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> Result<(), Box<dyn Error>> {
    let draw = |places: usize, deviation: f64| {
        let normal = Distribution::Normal(0.0, deviation);
        Tensor::<4>::random([1, 2, places, 16], normal, &opened.device)
    };
    // Large queries: some parts have far more to say to one than others have.
    let (query, key, value) = (draw(32, 4.0), draw(KEYS, 1.0), draw(KEYS, 1.0));
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
        println!(
            "{count:<9}{:<19.7}{:<23.7}{:.7}",
            difference(&merged.context, &whole.context),
            difference(&merged.log_sum_exp, &whole.log_sum_exp),
            difference(&mean, &whole.context),
        );
    }
    Ok(())
}

fn difference(a: &Tensor<4>, b: &Tensor<4>) -> f32 {
    (a.clone() - b.clone()).abs().max().into_scalar()
}
