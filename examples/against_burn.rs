//! burn-nn's attention and ours with the same weights: time and memory of a training pass.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin against_burn -- flex 4096
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::module::Module;
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{MultiHeadAttentionConfig, Pattern};
use zoo_backend::{Meter, Opened};

const HEADS: usize = 8;
const D_MODEL: usize = 512;
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let longest: usize = zoo_examples::argument(1, 2048)?;
    let device = &opened.device.clone().autodiff();
    let theirs = burn_nn::MultiHeadAttentionConfig::new(D_MODEL, HEADS)
        .with_dropout(0.0)
        .init(device);
    let ours = MultiHeadAttentionConfig::new(D_MODEL, HEADS).init(device);
    let ours = ours.load_record(theirs.clone().into_record());

    println!("causal, forward and backward; the median of {ROUNDS}");
    println!("              burn-nn                     here                  losses");
    println!("places      seconds    MB held     seconds    MB held     differ by");
    for places in [longest / 4, longest / 2, longest] {
        let x = Tensor::<3>::random([1, places, D_MODEL], Distribution::Default, device);
        let x = x.require_grad();
        let mask = burn_nn::generate_autoregressive_mask(1, places, device);
        let by_burn = || {
            let input = burn_nn::MhaInput::self_attn(x.clone()).mask_attn(mask.clone());
            theirs.forward(input).context
        };
        let by_us = || ours.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        let ways: [&dyn Fn() -> Tensor<3>; 2] = [&by_burn, &by_us];

        let mut rounds = [vec![], vec![]];
        for _ in 0..ROUNDS {
            for (rounds, way) in rounds.iter_mut().zip(ways) {
                rounds.push(measured(opened, device, way)?);
            }
        }
        let [burn, here] = rounds.map(|mut rounds| {
            rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
            rounds[ROUNDS / 2]
        });
        println!(
            "{places:6}   {:10.4} {:10.0}  {:10.4} {:10.0}    {:10.1e}",
            burn.seconds,
            burn.megabytes,
            here.seconds,
            here.megabytes,
            (burn.loss - here.loss).abs() / burn.loss,
        );
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    megabytes: f64,
    loss: f32,
}

/// One pass and the way back.
fn measured(
    opened: &Opened,
    device: &Device,
    way: &dyn Fn() -> Tensor<3>,
) -> Result<Measured, Box<dyn Error>> {
    let mut meter = Meter::start(opened);
    meter.inputs_are_there();
    let start = Instant::now();
    let loss = way().square().mean();
    let gradients = loss.backward();
    device.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = meter.peak().map_or(f64::NAN, |(bytes, _)| bytes as f64);
    drop(gradients);
    Ok(Measured {
        seconds,
        megabytes: bytes / 1e6,
        loss: loss.into_scalar(),
    })
}
