//! A hierarchical attention network reads documents, and shows what it read them by.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin classify_document
//! ```
//!
//! One sentence tells the class of a document. The network is told the classes alone; where it
//! looks is its own finding.

use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Int, Tensor};
use zoo_backend::Opened;
use zoo_data::tasks::{Documents as Task, Generate, MarkedDocument};
use zoo_data::{Labelled, Labels, TokenizerConfig};
use zoo_models::{Documents, HanConfig};

fn main() -> ExitCode {
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let plain = &opened.device;
    let device = &plain.clone().autodiff();
    let task = Task {
        classes: 3,
        key_sentences: 1,
        decoys: 0,
        min_sentences: 3,
        max_sentences: 4,
        min_words: 4,
        max_words: 6,
        train_size: 300,
        valid_size: 50,
        test_size: 0,
    };
    let parts = task.generate(7)?;
    let texts: Vec<Labelled> = (parts.train.iter().map(MarkedDocument::to_labelled)).collect();
    let labels = Labels::of(&texts)?;
    let classes = labels.numbers("train", &texts)?;
    let words = TokenizerConfig::words().train(texts.iter().map(|it| it.text.as_str()))?;
    let encoded = |documents: &[MarkedDocument]| {
        let sentences = |it: &MarkedDocument| {
            let lines = it.sentences.iter().map(|words| words.join(" "));
            lines.map(|line| words.encode(&line)).collect()
        };
        documents
            .iter()
            .map(sentences)
            .collect::<Result<Vec<Vec<Vec<u32>>>, _>>()
    };

    let mut model = HanConfig::new(words.vocabulary(), labels.names().len())
        .with_d_embedding(24)
        .with_d_word(12)
        .with_d_sentence(12)
        .with_d_attention(24)
        .with_dropout(0.0)
        .init(device);
    let given = Documents::new(&encoded(&parts.train)?, model.limits(), device)?;
    let classes: Vec<i64> = classes.into_iter().map(|class| class as i64).collect();
    let wanted = Tensor::<1, Int>::from_ints(classes.as_slice(), device);
    let loss = CrossEntropyLossConfig::new().init(device);
    let mut optimizer = AdamConfig::new().init();
    for step in 1..=40 {
        let loss = loss.forward(model.forward(&given).logits, wanted.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(2e-2, model, gradients);
        println!("step {step}: loss {:.3}", loss.into_scalar::<f32>());
    }

    // Documents it has not seen.
    let given = Documents::new(&encoded(&parts.valid)?, model.limits(), plain)?;
    let judged = model.valid().forward(&given);
    let [count, sentences, width] = judged.word_weights.dims();
    let of_sentences: Vec<f32> = judged.sentence_weights.try_into_vec_as()?;
    let of_words: Vec<f32> = judged.word_weights.try_into_vec_as()?;
    let looks_there = |document: &usize| {
        let own = &of_sentences[document * sentences..][..sentences];
        let most = own.iter().copied().fold(0.0, f32::max);
        let telling = parts.valid[*document].key_sentences();
        telling.into_iter().any(|at| own[at] == most)
    };
    let right = (0..count).filter(looks_there).count();
    println!("\nit looks most at the sentence that tells the class in {right} of {count}");

    let shown = &parts.valid[0];
    let found: Vec<i64> = judged.logits.argmax(1).try_into_vec_as()?;
    let found = labels.name(found[0] as usize).unwrap_or("?");
    println!("one is about {}, and it says {found}:\n", shown.label);
    for (at, (sentence, weight)) in shown.sentences.iter().zip(of_sentences).enumerate() {
        let words = sentence.iter().zip(&of_words[at * width..]);
        let words: String = words
            .map(|(word, own)| shaded(word, own * weight))
            .collect();
        println!("{:4.0}%  {words}", 100.0 * weight);
    }
    Ok(())
}

/// A word before a darker red, the more it weighs.
fn shaded(word: &str, weight: f32) -> String {
    let fade = (255.0 * (1.0 - weight.clamp(0.0, 1.0).sqrt())) as u8;
    format!("\x1b[38;2;0;0;0;48;2;255;{fade};{fade}m {word} \x1b[0m")
}
