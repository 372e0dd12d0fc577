//! One attention layer with the same weights and different mechanisms, selected by name.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin swap_mechanism
//! ```

use std::process::ExitCode;

use burn::module::Module;
use zoo_attention::{Mechanism, MultiHeadAttentionConfig, Pattern};
use zoo_examples::self_attention;

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let device = &opened.device;
        let layer = |mechanism: Mechanism| {
            MultiHeadAttentionConfig::new(64, 4)
                .with_mechanism(mechanism)
                .init(device)
        };
        let standard = layer(Mechanism::Standard);
        let x = zoo_examples::normal([2, 300, 64], device);
        let expected = self_attention(&standard, &x, Pattern::Causal);

        println!("mechanism         mean difference from standard");
        let names = "flash sliding-window strided longformer linear performer retention";
        for name in names.split(' ') {
            // The projections have the same names and shapes, so records are interchangeable.
            let record = standard.clone().into_record();
            let swapped = layer(name.parse()?).load_record(record);
            let output = self_attention(&swapped, &x, Pattern::Causal);
            let difference = (output - expected.clone()).abs().mean();
            println!("{name:16}  {:.7}", difference.into_scalar::<f32>());
        }
        println!(
            "\n`flash` equals standard up to rounding; the others are sparse or not softmax attention."
        );
        Ok(())
    })
}
