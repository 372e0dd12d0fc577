//! Trains a Transformer on a few phrases, and translates them with beam search.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin translate
//! ```

use std::process::ExitCode;

use burn::module::Module;
use burn::optim::{AdamConfig, GradientsParams};
use zoo_data::{BOS, EOS, PAD, Pair, PairIds, PairTokenizers, TokenizerConfig};
use zoo_models::{GenerateConfig, Strategy, Tokens, TransformerConfig, generate, token_loss};

const PHRASES: [(&str, &str); 6] = [
    ("long time no see", "lange nicht gesehen"),
    ("good morning", "guten morgen"),
    ("see you in the morning", "bis morgen früh"),
    ("how are you", "wie geht es dir"),
    ("are you here", "bist du hier"),
    ("no", "nein"),
];

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let plain = &opened.device;
        let training = &plain.clone().autodiff();
        let pairs = PHRASES.map(|(source, target)| Pair::new(source, target));
        let words = TokenizerConfig::words();
        let tokenizers = PairTokenizers::train_separate(&words, &words, &pairs)?;
        let (english, german) = (tokenizers.source(), tokenizers.target());
        let mut ids = vec![];
        for (source, target) in PHRASES {
            ids.push(PairIds {
                source: english.encode(source)?,
                target: german.encode(target)?,
            });
        }

        let sizes = [english, german].map(|tokenizer| tokenizer.vocab_size());
        let mut model = TransformerConfig::base(sizes[0], sizes[1])
            .with_d_model(32)
            .with_n_heads(4)
            .with_layers(1)
            .with_dropout(0.0)
            .init(training);
        let source: Vec<&[u32]> = ids.iter().map(|pair| &*pair.source).collect();
        let input: Vec<Vec<u32>> = ids.iter().map(PairIds::decoder_input).collect();
        let labels: Vec<Vec<u32>> = ids.iter().map(PairIds::decoder_output).collect();
        let source_tokens = Tokens::new(&source, model.source_limits(), training)?;
        let input = Tokens::new(&input, model.target_limits(), training)?;
        let labels = Tokens::new(&labels, model.target_limits(), training)?;
        let mut optimizer = AdamConfig::new().init();
        for step in 1..=30 {
            let loss = token_loss(model.forward(&source_tokens, &input), &labels, 0.0);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(1e-2, model, gradients);
            if step % 10 == 0 {
                println!("step {step}: loss {:.3}", loss.into_scalar::<f32>());
            }
        }

        let model = model.valid();
        let source_tokens = Tokens::new(&source, model.source_limits(), plain)?;
        let config = GenerateConfig::new(Strategy::beam(4))
            .with_end(Some(EOS))
            .with_never(vec![PAD, BOS])
            .with_max_length(8);
        let prompts = vec![[BOS]; source.len()];
        let texts = generate(&model, model.start(&source_tokens)?, &prompts, &config)?;
        println!();
        for ((phrase, _), best) in PHRASES.iter().zip(&texts) {
            println!("{phrase:24} {}", german.decode(&best[0].tokens)?);
        }
        Ok(())
    })
}
