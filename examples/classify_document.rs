//! Trains a hierarchical attention network on documents, and prints its attention weights.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin classify_document
//! ```
//!
//! One sentence of each document determines its class. The network is trained on the classes only
//! and has to find the sentence by itself.

use std::process::ExitCode;

use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Int, Tensor};
use zoo_data::tasks::{Documents as Task, Generate, MarkedDocument};
use zoo_data::{Labelled, Labels, TokenizerConfig};
use zoo_models::{Documents, HanConfig};

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let plain = &opened.device;
        let device = &plain.clone().autodiff();
        let task = Task {
            classes: 3,
            key_sentences: 1,
            distractors: 0,
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
        let labels = Labels::from_examples(&texts)?;
        let classes = labels.indices("train", &texts)?;
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

        let mut model = HanConfig::new(words.vocab_size(), labels.names().len())
            .with_d_embedding(24)
            .with_d_word(12)
            .with_d_sentence(12)
            .with_d_attention(24)
            .with_dropout(0.0)
            .init(device);
        let documents = Documents::new(&encoded(&parts.train)?, model.limits(), device)?;
        let classes: Vec<i64> = classes.into_iter().map(|class| class as i64).collect();
        let targets = Tensor::<1, Int>::from_ints(classes.as_slice(), device);
        let loss = CrossEntropyLossConfig::new().init(device);
        let mut optimizer = AdamConfig::new().init();
        for step in 1..=40 {
            let loss = loss.forward(model.forward(&documents).logits, targets.clone());
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(2e-2, model, gradients);
            println!("step {step}: loss {:.3}", loss.into_scalar::<f32>());
        }

        let documents = Documents::new(&encoded(&parts.valid)?, model.limits(), plain)?;
        let output = model.valid().forward(&documents);
        let [count, sentences, width] = output.word_weights.dims();
        let sentence_weights: Vec<f32> = output.sentence_weights.try_into_vec_as()?;
        let word_weights: Vec<f32> = output.word_weights.try_into_vec_as()?;
        let attends_to_key = |document: &usize| {
            let weights = &sentence_weights[document * sentences..][..sentences];
            let max = weights.iter().copied().fold(0.0, f32::max);
            let key_sentences = parts.valid[*document].key_sentences();
            key_sentences.into_iter().any(|i| weights[i] == max)
        };
        let correct = (0..count).filter(attends_to_key).count();
        println!("\nthe key sentence has the largest weight in {correct} of {count} documents");

        let example = &parts.valid[0];
        let classes: Vec<i64> = output.logits.argmax(1).try_into_vec_as()?;
        let predicted = labels.name(classes[0] as usize).unwrap_or("?");
        println!("true: {}, predicted: {predicted}\n", example.label);
        for (i, (sentence, weight)) in example.sentences.iter().zip(sentence_weights).enumerate() {
            let words = sentence.iter().zip(&word_weights[i * width..]);
            let words: String = words
                .map(|(word, word_weight)| shade(word, word_weight * weight))
                .collect();
            println!("{:4.0}%  {words}", 100.0 * weight);
        }
        Ok(())
    })
}

/// A word on a background that is redder for larger weights.
fn shade(word: &str, weight: f32) -> String {
    let fade = (255.0 * (1.0 - weight.clamp(0.0, 1.0).sqrt())) as u8;
    format!("\x1b[38;2;0;0;0;48;2;255;{fade};{fade}m {word} \x1b[0m")
}
