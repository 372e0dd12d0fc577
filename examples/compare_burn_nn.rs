//! Time and memory of a training pass of burn-nn's attention and this library's, with the same
//! weights.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin compare_burn_nn -- flex 4096
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::module::Module;
use burn::nn::attention as burn_nn;
use burn::tensor::{Device, Distribution, Tensor};
use zoo_attention::{MultiHeadAttentionConfig, Pattern};
use zoo_backend::{Meter, OpenDevice};
use zoo_examples::self_attention;

const HEADS: usize = 8;
const D_MODEL: usize = 512;
const ROUNDS: usize = 3;

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let longest: usize = zoo_examples::argument(1, 2048)?;
        let device = &opened.device.clone().autodiff();
        let theirs = burn_nn::MultiHeadAttentionConfig::new(D_MODEL, HEADS)
            .with_dropout(0.0)
            .init(device);
        let ours = MultiHeadAttentionConfig::new(D_MODEL, HEADS).init(device);
        let ours = ours.load_record(theirs.clone().into_record());

        println!("causal, forward and backward, median of {ROUNDS}");
        println!("              burn-nn                  zoo-attention           loss");
        println!("seq         seconds    peak MB     seconds    peak MB    difference");
        for seq in [longest / 4, longest / 2, longest] {
            let x = Tensor::<3>::random([1, seq, D_MODEL], Distribution::Default, device);
            let x = x.require_grad();
            let mask = burn_nn::generate_autoregressive_mask(1, seq, device);
            let burn_pass = || {
                let input = burn_nn::MhaInput::self_attn(x.clone()).mask_attn(mask.clone());
                theirs.forward(input).context
            };
            let our_pass = || self_attention(&ours, &x, Pattern::Causal);
            let passes: [&dyn Fn() -> Tensor<3>; 2] = [&burn_pass, &our_pass];

            let mut rounds = [vec![], vec![]];
            for _ in 0..ROUNDS {
                for (rounds, pass) in rounds.iter_mut().zip(passes) {
                    rounds.push(measure(opened, device, pass)?);
                }
            }
            let [burn, ours] = rounds.map(|mut rounds| {
                rounds.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
                rounds[ROUNDS / 2]
            });
            println!(
                "{seq:6}   {:10.4} {:10.0}  {:10.4} {:10.0}    {:10.1e}",
                burn.seconds,
                burn.megabytes,
                ours.seconds,
                ours.megabytes,
                (burn.loss - ours.loss).abs() / burn.loss,
            );
        }
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Measurement {
    seconds: f64,
    megabytes: f64,
    loss: f32,
}

/// Measures one forward and backward pass.
fn measure(
    opened: &OpenDevice,
    device: &Device,
    pass: &dyn Fn() -> Tensor<3>,
) -> Result<Measurement, Box<dyn Error>> {
    let mut meter = Meter::start(opened);
    meter.reset_peak();
    let start = Instant::now();
    let loss = pass().square().mean();
    let gradients = loss.backward();
    device.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = meter.peak().map_or(f64::NAN, |(bytes, _)| bytes as f64);
    drop(gradients);
    Ok(Measurement {
        seconds,
        megabytes: bytes / 1e6,
        loss: loss.into_scalar(),
    })
}
