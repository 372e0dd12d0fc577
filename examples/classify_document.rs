//! A hierarchical attention network reads documents, and shows what it read them by.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin classify_document
//! ```
//!
//! A document's class is told by one of its sentences, and by two words in it. The network is
//! told the classes alone; where it looks is its own finding.

use std::error::Error;
use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Int, Tensor};
use zoo_backend::Opened;
use zoo_data::tasks::{Counts, Documents as Task, MarkedDocument};
use zoo_data::{Labelled, Labels, TokenizerConfig};
use zoo_models::{Documents, HanConfig};

const CLASSES: usize = 3;

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> Result<(), Box<dyn Error>> {
    let plain = &opened.device;
    let device = &plain.clone().autodiff();
    let task = Task::new()
        .with_classes(CLASSES)
        .with_key_sentences(1)
        .with_decoys(0);
    let task = task.with_sentences(3, 4).with_words(4, 6);
    let parts = task.generate(Counts::new(80, 1), 7)?;
    let texts = parts.train.iter().map(MarkedDocument::to_labelled);
    let texts: Vec<Labelled> = texts.collect();
    let labels = Labels::of(&texts)?;
    let classes = labels.numbers("train", &texts)?.into_iter();
    let classes: Vec<i64> = classes.map(|class| class as i64).collect();
    let words = TokenizerConfig::words().train(texts.iter().map(|it| it.text.as_str()))?;
    let encoded = |document: &MarkedDocument| {
        let sentences = document.sentences.iter();
        sentences
            .map(|sentence| words.encode(&sentence.join(" ")))
            .collect()
    };
    let documents: Vec<Vec<Vec<u32>>> =
        parts.train.iter().map(encoded).collect::<Result<_, _>>()?;

    let mut model = HanConfig::new(words.vocabulary(), CLASSES)
        .with_d_embedding(24)
        .with_d_word(12)
        .with_d_sentence(12)
        .with_d_attention(24)
        .init(device);
    let given = Documents::new(&documents, model.limits(), device)?;
    let wanted = Tensor::<1, Int>::from_ints(classes.as_slice(), device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = AdamConfig::new().init();
    for step in 1..=25 {
        let loss = loss.forward(model.forward(&given).logits, wanted.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(2e-2, model, gradients);
        if step % 5 == 0 {
            println!("step {step}: loss {:.3}", loss.into_scalar::<f32>());
        }
    }

    let shown = &parts.valid[0];
    let given = Documents::new(&[encoded(shown)?], model.limits(), plain)?;
    let judged = model.valid().forward(&given);
    let found = judged.logits.argmax(1).into_scalar::<i64>() as usize;
    let found = labels.name(found).unwrap_or("?");
    println!("\nit is about {}, and it says {found}:\n", shown.label);
    let [_, sentences, width] = judged.word_weights.dims();
    let of_sentences: Vec<f32> = judged.sentence_weights.try_into_vec_as()?;
    let of_words: Vec<f32> = judged.word_weights.try_into_vec_as()?;
    for at in 0..sentences {
        let weights = &of_words[at * width..];
        let words = shown.sentences[at].iter().zip(weights);
        let words = words.map(|(word, weight)| shaded(word, weight * of_sentences[at]));
        let share = 100.0 * of_sentences[at];
        println!("{share:4.0}%  {}", words.collect::<String>());
    }
    Ok(())
}

/// A word before a darker red, the more it weighs.
fn shaded(word: &str, weight: f32) -> String {
    let fade = (255.0 * (1.0 - weight.clamp(0.0, 1.0).sqrt())) as u8;
    format!("\x1b[38;2;0;0;0;48;2;255;{fade};{fade}m {word} \x1b[0m")
}
