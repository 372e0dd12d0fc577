//! Trains a layer over a long sequence, in memory that grows with the length alone.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin long_context -- flex 16384
//! ```
//!
//! Attention that holds its weights would keep two matrices of `heads · n · n` numbers for
//! the way back: 17 GB at n = 16,384.

use std::process::ExitCode;
use std::time::Instant;

use burn::optim::{AdamConfig, GradientsParams};
use zoo_attention::{Mechanism, MultiHeadAttentionConfig, Pattern};
use zoo_backend::{Meter, Opened};

const HEADS: usize = 8;
const D_MODEL: usize = 512;
const STEPS: usize = 3;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let length: usize = zoo_examples::argument(1, 16_384)?;
    let device = &opened.device.clone().autodiff();
    let mut meter = Meter::start(opened);
    let mut layer = MultiHeadAttentionConfig::new(D_MODEL, HEADS)
        .with_mechanism(Mechanism::Flash.into())
        .init(device);
    let mut optimizer = AdamConfig::new().init();
    let x = zoo_examples::normal([1, length, D_MODEL], device);
    meter.inputs_are_there();

    for step in 1..=STEPS {
        let start = Instant::now();
        let y = layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal);
        // To say again what was said: it has to look at itself.
        let loss = (y - x.clone()).square().mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &layer);
        layer = optimizer.step(1e-3, layer, gradients);
        let loss = loss.into_scalar::<f32>();
        println!("step {step}: loss {loss:.4}, {:.2?}", start.elapsed());
    }
    let gigabytes = 2e-9 * (HEADS * length * length * size_of::<f32>()) as f64;
    println!("\nwith its weights held: {gigabytes:.2} GB for them alone");
    match meter.peak() {
        Some((bytes, how)) => println!("taken here: {:.2} GB ({how})", bytes as f64 / 1e9),
        None => println!("nobody counts memory here"),
    }
    Ok(())
}
