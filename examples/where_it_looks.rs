//! Where does each word look? Prints the weights of one causal attention.
//!
//! ```sh
//! cargo run --release -p zoo-examples --features flex --bin where_it_looks
//! ```
//!
//! The words carry two hand-made features, "is an animal" and "is a place".
//! A pronoun asks for an animal, a preposition for a place: each finds the last
//! word that has what it asks for, and never one to its right.

use std::process::ExitCode;

use burn::tensor::Tensor;
use zoo_attention::{AttentionOptions, Pattern, standard};
use zoo_backend::Opened;

/// A word, what it asks for and what it has: `[animal, place]`.
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
    zoo_examples::on_device(run)
}

fn run(opened: &Opened) -> zoo_examples::Outcome {
    let words = SENTENCE.map(|(word, _, _)| word);
    let asks = SENTENCE.map(|(_, asks, _)| asks);
    let has = SENTENCE.map(|(_, _, has)| has);
    // One example, one head: [seq, d_head] becomes [1, 1, seq, d_head].
    let query = Tensor::<2>::from_data(asks, &opened.device).unsqueeze::<4>();
    let key = Tensor::<2>::from_data(has, &opened.device).unsqueeze::<4>();

    let options = AttentionOptions::new()
        .with_pattern(Pattern::Causal)
        .with_scale(1.0);
    let attended = standard(query, key.clone(), key, &options);
    let weights: Vec<f32> = attended.weights.try_into_vec_as()?;

    let header = words.map(|word| format!("{word:>8}")).concat();
    println!("{:>8} {header}", "");
    for (word, row) in words.iter().zip(weights.chunks(words.len())) {
        let shades: String = row
            .iter()
            .map(|&weight| format!("{:>8}", shade(weight)))
            .collect();
        println!("{word:>8} {shades}");
    }
    Ok(())
}

/// Darker for more weight; nothing at all for a word that is hidden.
fn shade(weight: f32) -> String {
    const SHADES: [&str; 5] = ["░", "▒", "▓", "█", "█"];
    match weight {
        0.0 => String::new(),
        weight => SHADES[(weight * 4.0) as usize].repeat(4),
    }
}
