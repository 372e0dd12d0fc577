//! Reads what `torch.save` wrote of a GPT-2 into ours, and goes on with a text.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin import_pytorch -- flex [FILE]
//! ```
//!
//! The file that comes with the tests is a GPT-2 with 17 tokens that knows nothing; the real
//! one is `GptConfig::new(50_257, 768, 12, 12)`.

use std::process::ExitCode;

use zoo_backend::Opened;
use zoo_models::weights::{Weights, import};
use zoo_models::{GenerateConfig, GptConfig, PositionEncoding, Strategy, Tokens, generate};

const SMALL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/conformance/golden/gpt2.pt"
);

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let device = &opened.device;
    let file: String = zoo_examples::argument(1, SMALL.to_owned())?;
    // A safetensors file is read in the same way.
    let weights = Weights::read(&file)?;
    println!("{} tensors, among them:", weights.keys().count());
    for key in weights.keys().filter(|key| key.starts_with("h.0.attn")) {
        println!("  {key}");
    }

    // Names, and matrices that are the other way round or three in one, are seen to here.
    let config = GptConfig::new(17, 16, 2, 2).with_positions(PositionEncoding::learned(12));
    let model = import::gpt2(weights)?.apply(config.init(device))?;
    println!("\n{model}\n");

    let prompt = [1_u32, 2, 3];
    let tokens = Tokens::new(&[&prompt], model.limits(), device)?;
    let logits = model.forward(&tokens); // [1, 3, 17]
    println!("logits: {:?}", logits.dims());
    let greedy = GenerateConfig::new(Strategy::Greedy).with_max_length(6);
    let texts = generate(&model, model.start(1)?, &[prompt], &greedy)?;
    println!("{prompt:?} goes on with {:?}", texts[0][0].tokens);
    Ok(())
}
