//! What makes tokens of a run's texts, learned or loaded, and stored in the run's folder.

use zoo_config::{Config, Data, Files, Sentences, Tokenizer as Said, Vocabulary, WordRule};
use zoo_data::{Encoded, LengthRule, Pair, PairTokenizers, Tokenizer, TokenizerConfig};

use super::Note;
use crate::{DataPart, Result};

pub(super) const TOKENIZER: &str = "tokenizer.json";

/// Tokenizers of pairs that are learned from these, or loaded, as the config says.
pub(super) fn pair_tokenizers(config: &Config, train: &[Pair]) -> Result<PairTokenizers> {
    let learned = tokenizer_config(&config.tokenizer);
    Ok(match (config.tokenizer.load(), config.vocabulary()) {
        (Some(Files::Two([source, target])), _) => PairTokenizers::Separate {
            source: Tokenizer::load(source)?,
            target: Tokenizer::load(target)?,
        },
        (Some(Files::One(both)), _) => PairTokenizers::Joint(Tokenizer::load(both)?),
        (None, Some(Vocabulary::Joint)) => PairTokenizers::train_joint(&learned, train)?,
        (None, _) => PairTokenizers::train_separate(&learned, &learned, train)?,
    })
}

/// A tokenizer that is learned from these texts, or loaded, as the config says.
pub(super) fn one_tokenizer<'a>(
    config: &Config,
    texts: impl Iterator<Item = &'a str>,
) -> Result<Tokenizer> {
    Ok(match config.tokenizer.load() {
        Some(Files::One(path)) => Tokenizer::load(path)?,
        Some(Files::Two([path, _])) => Tokenizer::load(path)?,
        None => tokenizer_config(&config.tokenizer).train(texts)?,
    })
}

/// Where sentences of the config's documents end.
pub(super) fn sentence_rule(config: &Config) -> Sentences {
    match &config.data {
        Data::Labelled(data) => data.sentences.unwrap_or(Sentences::Marks),
        // Those that are made up have a sentence a line.
        _ => Sentences::Lines,
    }
}

/// Applies a rule to what is longer than so many tokens, and says what it changed.
pub(super) fn shorten<T: Encoded>(
    rule: LengthRule,
    part: DataPart,
    examples: &mut Vec<T>,
    longest: Option<usize>,
    note: Note<'_>,
) -> Result<()> {
    let Some(longest) = longest.filter(|_| !examples.is_empty()) else {
        return Ok(());
    };
    let report = rule.apply(examples, longest)?;
    if report.count > 0 {
        note(&format!("{}: {report}", part.word()));
    }
    Ok(())
}

fn tokenizer_config(said: &Said) -> TokenizerConfig {
    let sized = |config: TokenizerConfig, size: Option<usize>| match size {
        Some(size) => config.with_size(size),
        None => config,
    };
    match said {
        Said::Char(said) => sized(TokenizerConfig::chars(), said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_byte_fallback(said.byte_fallback),
        Said::Word(said) => sized(TokenizerConfig::words(), said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_words(said.words.unwrap_or(WordRule::Marks)),
        Said::Bpe(said) => TokenizerConfig::bpe(said.size)
            .with_min_frequency(said.min_frequency as u64)
            .with_lowercase(said.lowercase)
            .with_words(said.words.unwrap_or(WordRule::Marks))
            .with_byte_fallback(said.byte_fallback),
    }
}
