//! Generates text with a key/value cache, and again without one.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin decode_with_cache -- flex 192
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use burn::tensor::Device;
use zoo_models::{GenerateConfig, Gpt, GptConfig, PositionEncoding, Strategy, Tokens, generate};

const VOCABULARY: usize = 100;
const PROMPT: [u32; 8] = [3, 14, 15, 92, 65, 35, 89, 79];

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let count: usize = zoo_examples::argument(1, 192)?;
        let device = &opened.device;
        // Two key/value heads for eight query heads: a quarter of the cache.
        let model = GptConfig::new(VOCABULARY, 128, 8, 3)
            .with_n_heads_kv(Some(2))
            .with_positions(PositionEncoding::rotary(10_000.0))
            .with_tie_embeddings(false)
            .init(device);

        let start = Instant::now();
        let config = GenerateConfig::new(Strategy::Greedy).with_max_length(count);
        let texts = generate(&model, model.start(1)?, &[PROMPT], &config)?;
        let cached = &texts[0][0].tokens;
        println!("with a cache:    {count} tokens in {:.2?}", start.elapsed());

        let start = Instant::now();
        let uncached = generate_uncached(&model, count, device)?;
        println!("without a cache: {count} tokens in {:.2?}", start.elapsed());

        if *cached != uncached {
            return Err("the texts differ".into());
        }
        println!(
            "identical tokens: {:?} ...",
            &cached[..cached.len().min(16)]
        );
        Ok(())
    })
}

/// Runs the model over the whole text for every generated token.
fn generate_uncached(
    model: &Gpt,
    count: usize,
    device: &Device,
) -> Result<Vec<u32>, Box<dyn Error>> {
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
