//! Loads a GPT-2 checkpoint saved with `torch.save`, and generates text.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin import_pytorch -- flex [FILE]
//! ```
//!
//! The default file is an untrained GPT-2 with a vocabulary of 17; the config of the published
//! model is `GptConfig::new(50_257, 768, 12, 12)`.

use std::process::ExitCode;

use zoo_models::weights::{Weights, import};
use zoo_models::{GenerateConfig, GptConfig, PositionEncoding, Strategy, Tokens, generate};

const TEST_FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../crates/conformance/golden/gpt2.pt"
);

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let device = &opened.device;
        let file: String = zoo_examples::argument(1, TEST_FILE.to_owned())?;
        // Also reads safetensors files.
        let weights = Weights::read(&file)?;
        println!("{} tensors, among them:", weights.keys().count());
        for key in weights.keys().filter(|key| key.starts_with("h.0.attn")) {
            println!("  {key}");
        }

        // Renames keys, transposes weights and splits the stacked query, key and value projections.
        let config = GptConfig::new(17, 16, 2, 2).with_positions(PositionEncoding::learned(12));
        let model = import::gpt2(weights)?.apply(config.init(device))?;
        println!("\n{model}\n");

        let prompt = [1_u32, 2, 3];
        let tokens = Tokens::new(&[&prompt], model.limits(), device)?;
        let logits = model.forward(&tokens); // [1, 3, 17]
        println!("logits: {:?}", logits.dims());
        let greedy = GenerateConfig::new(Strategy::Greedy).with_max_length(6);
        let texts = generate(&model, model.start(1)?, &[prompt], &greedy)?;
        println!("prompt {prompt:?} continues with {:?}", texts[0][0].tokens);
        Ok(())
    })
}
