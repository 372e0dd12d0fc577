//! Sequences of random tokens.

use anyhow::Result;
use burn::tensor::{Device, Tensor};
use zoo_models::generate::Generated;
use zoo_models::{Limits, Tokens, token_loss};

/// Rows of tokens below `vocabulary`, as random as a bench needs: others for each `seed`.
pub(super) fn rows([batch, length]: [usize; 2], vocabulary: usize, seed: u64) -> Vec<Vec<u32>> {
    // Knuth's constants; the high bits are the random ones.
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % vocabulary as u64) as u32
    };
    let mut row = |_| (0..length).map(|_| draw()).collect();
    (0..batch).map(&mut row).collect()
}

/// Each row without its last token, and without its first: what goes in, and what comes next.
pub(super) fn shifted(rows: &[Vec<u32>]) -> [Vec<Vec<u32>>; 2] {
    let part = |cut: fn(&[u32]) -> &[u32]| rows.iter().map(|row| cut(row).to_vec()).collect();
    [part(|row| &row[..row.len() - 1]), part(|row| &row[1..])]
}

/// A prompt with a text after it but for the last token: what a model took in to say it.
pub(super) fn taken(prompts: &[Vec<u32>], texts: &[Vec<u32>]) -> Vec<Vec<u32>> {
    let whole = |(prompt, text): (&Vec<u32>, &Vec<u32>)| {
        let said = &text[..text.len().saturating_sub(1)];
        [prompt, said].concat()
    };
    prompts.iter().zip(texts).map(whole).collect()
}

/// The tokens of each row's best text.
pub(super) fn best(texts: Vec<Vec<Generated>>) -> Vec<Vec<u32>> {
    let tokens = |texts: Vec<Generated>| texts.into_iter().next().map(|text| text.tokens);
    texts.into_iter().filter_map(tokens).collect()
}

/// A class for each of `batch` examples, as sequences of one token.
pub(super) fn classes(batch: usize, classes: usize, device: &Device) -> Result<Tokens> {
    let limits = Limits {
        vocabulary: classes,
        longest: None,
    };
    Ok(Tokens::new(&rows([batch, 1], classes, 7), limits, device)?)
}

/// The cross-entropy.
pub(super) fn loss(logits: Tensor<3>, targets: &Tokens) -> Tensor<1> {
    token_loss(logits, targets, 0.0)
}
