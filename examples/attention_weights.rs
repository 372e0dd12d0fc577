//! Prints the weights of one causal attention head.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin attention_weights
//! ```
//!
//! The keys have two hand-made features, "animal" and "location". The query of a pronoun matches
//! animals, that of a preposition locations, so they attend to the words with these features. The
//! causal mask excludes words to the right.

use std::process::ExitCode;

use burn::tensor::Tensor;
use zoo_attention::{AttentionOptions, Pattern, standard};

/// Word, query and key, with the features `[animal, location]`.
const SENTENCE: [(&str, [f32; 2], [f32; 2]); 8] = [
    ("the", [0.0, 0.0], [0.0, 0.0]),
    ("cat", [0.0, 0.0], [6.0, 0.0]),
    ("left", [0.0, 0.0], [0.0, 0.0]),
    ("the", [0.0, 0.0], [0.0, 0.0]),
    ("house", [0.0, 0.0], [0.0, 6.0]),
    ("when", [0.0, 0.0], [0.0, 0.0]),
    ("it", [1.0, 0.0], [0.0, 0.0]),
    ("outside", [0.0, 1.0], [0.0, 0.0]),
];

fn main() -> ExitCode {
    zoo_examples::on_device(|opened| {
        let words = SENTENCE.map(|(word, _, _)| word);
        let query = SENTENCE.map(|(_, query, _)| query);
        let key = SENTENCE.map(|(_, _, key)| key);
        // Batch size 1, one head: [seq, d_head] becomes [1, 1, seq, d_head].
        let query = Tensor::<2>::from_data(query, &opened.device).unsqueeze::<4>();
        let key = Tensor::<2>::from_data(key, &opened.device).unsqueeze::<4>();

        let options = AttentionOptions::new()
            .with_pattern(Pattern::Causal)
            .with_scale(1.0);
        let output = standard(query, key.clone(), key, &options);
        let weights: Vec<f32> = output.into_weights().try_into_vec_as()?;

        let header = words.map(|word| format!("{word:>8}")).concat();
        println!("{:>8} {header}", "");
        for (word, row) in words.iter().zip(weights.chunks(words.len())) {
            let shades = row.iter().map(|weight| format!("{:>8}", shade(*weight)));
            println!("{word:>8} {}", shades.collect::<String>());
        }
        Ok(())
    })
}

/// Darker for larger weights, empty for masked words.
fn shade(weight: f32) -> String {
    const SHADES: [&str; 5] = ["░", "▒", "▓", "█", "█"];
    match weight {
        0.0 => String::new(),
        weight => SHADES[(weight * 4.0) as usize].repeat(4),
    }
}
