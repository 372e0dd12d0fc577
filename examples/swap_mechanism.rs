//! One layer, one set of weights, and the mechanism between the projections as a word.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin swap_mechanism
//! ```

use std::process::ExitCode;

use burn::module::Module;
use burn::tensor::Tensor;
use zoo_attention::{Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern};
use zoo_backend::Opened;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let device = &opened.device;
    let layer = |mechanism: Mechanism| {
        MultiHeadAttentionConfig::new(64, 4)
            .with_mechanism(mechanism.into())
            .init(device)
    };
    let standard = layer(Mechanism::Standard);
    let x = zoo_examples::normal([2, 300, 64], device);
    let expected = pass(&standard, &x);

    println!("mechanism         differs from standard by");
    let words = "flash sliding-window strided longformer linear performer retention";
    for word in words.split(' ') {
        // The projections have the same names and sizes: a record of one is one of the other.
        let record = standard.clone().into_record();
        let swapped = layer(word.parse()?).load_record(record);
        let difference = (pass(&swapped, &x) - expected.clone()).abs().mean();
        println!("{word:16}  {:.7}", difference.into_scalar::<f32>());
    }
    println!("\n`flash` is the same to the last digits; others see less, or weigh in another way.");
    Ok(())
}

fn pass(layer: &MultiHeadAttention, x: &Tensor<3>) -> Tensor<3> {
    layer.forward(x.clone(), x.clone(), x.clone(), Pattern::Causal)
}
