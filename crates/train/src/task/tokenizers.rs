//! The tokenizers of a run, trained or loaded, and stored in its folder.

use zoo_config::{Config, Files, PreTokenization, Tokenizer as TokenizerSection, Vocabulary};
use zoo_data::{Encoded, LengthRule, Pair, PairTokenizers, Tokenizer, TokenizerConfig};

use super::Note;
use crate::{DataSplit, Result};

pub(super) const TOKENIZER: &str = "tokenizer.json";

pub(super) fn pair_tokenizers(config: &Config, train: &[Pair]) -> Result<PairTokenizers> {
    let trained = tokenizer_config(&config.tokenizer);
    Ok(match (config.tokenizer.load(), config.vocabulary()) {
        (Some(Files::Two([source, target])), _) => PairTokenizers::Separate {
            source: Tokenizer::load(source)?,
            target: Tokenizer::load(target)?,
        },
        (Some(Files::One(both)), _) => PairTokenizers::Joint(Tokenizer::load(both)?),
        (None, Some(Vocabulary::Joint)) => PairTokenizers::train_joint(&trained, train)?,
        (None, _) => PairTokenizers::train_separate(&trained, &trained, train)?,
    })
}

pub(super) fn single_tokenizer<'a>(
    config: &Config,
    texts: impl Iterator<Item = &'a str>,
) -> Result<Tokenizer> {
    Ok(match config.tokenizer.load() {
        Some(Files::One(path)) => Tokenizer::load(path)?,
        Some(Files::Two([path, _])) => Tokenizer::load(path)?,
        None => tokenizer_config(&config.tokenizer).train(texts)?,
    })
}

/// Applies a rule to examples of more than `longest` tokens, and reports the changes.
pub(super) fn shorten<T: Encoded>(
    rule: LengthRule,
    split: DataSplit,
    examples: &mut Vec<T>,
    longest: Option<usize>,
    note: Note<'_>,
) -> Result<()> {
    let Some(longest) = longest.filter(|_| !examples.is_empty()) else {
        return Ok(());
    };
    let report = rule.apply(examples, longest)?;
    if report.count > 0 {
        note(&format!("{}: {report}", split.name()));
    }
    Ok(())
}

fn tokenizer_config(section: &TokenizerSection) -> TokenizerConfig {
    let with_size = |config: TokenizerConfig, size: Option<usize>| match size {
        Some(size) => config.with_size(size),
        None => config,
    };
    match section {
        TokenizerSection::Char(section) => with_size(TokenizerConfig::chars(), section.vocab_size)
            .with_min_frequency(section.min_frequency as u64)
            .with_lowercase(section.lowercase)
            .with_byte_fallback(section.byte_fallback),
        TokenizerSection::Word(section) => with_size(TokenizerConfig::words(), section.vocab_size)
            .with_min_frequency(section.min_frequency as u64)
            .with_lowercase(section.lowercase)
            .with_pre_tokenization(
                section
                    .pre_tokenizer
                    .unwrap_or(PreTokenization::Punctuation),
            ),
        TokenizerSection::Bpe(section) => TokenizerConfig::bpe(section.vocab_size)
            .with_min_frequency(section.min_frequency as u64)
            .with_lowercase(section.lowercase)
            .with_pre_tokenization(
                section
                    .pre_tokenizer
                    .unwrap_or(PreTokenization::Punctuation),
            )
            .with_byte_fallback(section.byte_fallback),
    }
}
