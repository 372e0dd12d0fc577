//! One attention layer with the same weights and different mechanisms, selected by name.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin swap_mechanism
//! ```

use std::process::ExitCode;

use burn::module::Module;
use burn::tensor::Tensor;
use zoo_attention::{
    AttentionInput, Mechanism, MultiHeadAttention, MultiHeadAttentionConfig, Pattern,
};
use zoo_backend::OpenDevice;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &OpenDevice) -> zoo_examples::Outcome {
    let device = &opened.device;
    let layer = |mechanism: Mechanism| {
        MultiHeadAttentionConfig::new(64, 4)
            .with_mechanism(mechanism)
            .init(device)
    };
    let standard = layer(Mechanism::Standard);
    let x = zoo_examples::normal([2, 300, 64], device);
    let expected = forward(&standard, &x);

    println!("mechanism         mean difference from standard");
    let names = "flash sliding-window strided longformer linear performer retention";
    for name in names.split(' ') {
        // The projections have the same names and shapes, so records are interchangeable.
        let record = standard.clone().into_record();
        let swapped = layer(name.parse()?).load_record(record);
        let difference = (forward(&swapped, &x) - expected.clone()).abs().mean();
        println!("{name:16}  {:.7}", difference.into_scalar::<f32>());
    }
    println!(
        "\n`flash` equals standard up to rounding; the others are sparse or not softmax attention."
    );
    Ok(())
}

fn forward(layer: &MultiHeadAttention, x: &Tensor<3>) -> Tensor<3> {
    layer
        .forward(AttentionInput::self_attn(x.clone()).pattern(Pattern::Causal))
        .context
}
