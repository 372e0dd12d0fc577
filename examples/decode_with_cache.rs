//! Writes a text token by token, keeping what was computed, and once more without that.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin decode_with_cache -- flex 192
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::Device;
use zoo_backend::Opened;
use zoo_models::{GenerateConfig, Gpt, GptConfig, PositionEncoding, Strategy, Tokens, generate};

const VOCABULARY: usize = 100;
const PROMPT: [u32; 8] = [3, 14, 15, 92, 65, 35, 89, 79];

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let count: usize = zoo_examples::argument(1, 192)?;
    let device = &opened.device;
    // Two heads of keys and values for eight of queries: a quarter of the memory.
    let model = GptConfig::new(VOCABULARY, 128, 8, 3)
        .with_kv_heads(Some(2))
        .with_positions(PositionEncoding::rotary(10_000.0))
        .with_tied(false)
        .init(device);

    let start = Instant::now();
    let config = GenerateConfig::new(Strategy::Greedy).with_max_length(count);
    let texts = generate(&model, model.start(1)?, &[PROMPT], &config)?;
    let kept = &texts[0][0].tokens;
    println!("with a cache:    {count} tokens in {:.2?}", start.elapsed());

    let start = Instant::now();
    let anew = without_a_cache(&model, count, device)?;
    println!("without a cache: {count} tokens in {:.2?}", start.elapsed());

    if *kept != anew {
        return Err("the texts differ".into());
    }
    println!("the same text: {:?} ...", &kept[..kept.len().min(16)]);
    Ok(())
}

/// The whole text goes through the model for every token of it.
fn without_a_cache(model: &Gpt, count: usize, device: &Device) -> Result<Vec<u32>, Box<dyn Error>> {
    let mut text = PROMPT.to_vec();
    for _ in 0..count {
        let tokens = Tokens::new(&[&text], model.limits(), device)?;
        let logits = model.forward(&tokens); // [1, seq, vocabulary]
        let last = logits.slice_dim(1, text.len() - 1..text.len());
        let best = last.argmax(2).into_scalar::<i64>();
        text.push(best as u32);
    }
    Ok(text.split_off(PROMPT.len()))
}
