//! Trains a layer on a long sequence with memory linear in its length.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin long_context -- flex 16384
//! ```
//!
//! Attention with materialized weights would save two `heads · n · n` matrices for the backward
//! pass: 17 GB at n = 16,384.

use std::process::ExitCode;
use std::time::Instant;

use burn::optim::{AdamConfig, GradientsParams};
use zoo_attention::{Mechanism, MultiHeadAttentionConfig, Pattern};
use zoo_backend::Meter;

const HEADS: usize = 8;
const D_MODEL: usize = 512;
const STEPS: usize = 3;

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let length: usize = zoo_examples::argument(1, 16_384)?;
        let device = &opened.device.clone().autodiff();
        let mut meter = Meter::start(opened);
        let mut layer = MultiHeadAttentionConfig::new(D_MODEL, HEADS)
            .with_mechanism(Mechanism::Flash)
            .init(device);
        let mut optimizer = AdamConfig::new().init();
        let x = zoo_examples::normal([1, length, D_MODEL], device);
        meter.reset_peak();

        for step in 1..=STEPS {
            let start = Instant::now();
            let y = zoo_examples::self_attention(&layer, &x, Pattern::Causal);
            // The target is the input, so each position has to attend to itself.
            let loss = (y - x.clone()).square().mean();
            let gradients = GradientsParams::from_grads(loss.backward(), &layer);
            layer = optimizer.step(1e-3, layer, gradients);
            let loss = loss.into_scalar::<f32>();
            println!("step {step}: loss {loss:.4}, {:.2?}", start.elapsed());
        }
        let gigabytes = 2e-9 * (HEADS * length * length * size_of::<f32>()) as f64;
        println!("\nmaterialized weights would take: {gigabytes:.2} GB");
        match meter.peak() {
            Some((bytes, how)) => println!("peak memory: {:.2} GB ({how})", bytes as f64 / 1e9),
            None => println!("peak memory is not available on this backend"),
        }
        Ok(())
    })
}
