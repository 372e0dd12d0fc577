//! Tokenizer training. It is deterministic: counts are ordered, and ties are sorted alphabetically.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, BpeBuilder, BpeTrainer, Vocab};
use tokenizers::models::wordlevel::WordLevel;
use tokenizers::normalizers::utils::{Lowercase, Sequence as Normalizers};
use tokenizers::normalizers::{BertNormalizer, NFC, NormalizerWrapper, Prepend};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{
    AddedToken, ModelWrapper, NormalizedString, Normalizer, OffsetReferential, OffsetType,
    PreTokenizedString, PreTokenizer, Result, SplitDelimiterBehavior,
};
use zoo_config::PreTokenization;

use super::config::{TokenizerConfig, TokenizerKind};
use super::{SPECIAL_TOKENS, Tokenizer, UNK, invalid};
use crate::DataError;

/// Replacement of spaces in tokens.
const SPACE: char = '▁';

/// Pre-tokenization patterns: merges do not cross their matches, which include a leading space.
/// Apostrophes belong to words: `don't`, `'s`.
const BY_SPACES: &str = r" ?\S+|\s";
const BY_MARKS: &str = r" ?(?:[^\s\p{P}\p{S}]|['’])+| ?[\p{P}\p{S}]+|\s";

impl TokenizerConfig {
    /// Trains a tokenizer on texts.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the vocabulary has no space beyond the special tokens,
    /// [`DataError::Empty`] if there is no text.
    pub fn train<'a>(
        &self,
        texts: impl IntoIterator<Item = &'a str>,
    ) -> std::result::Result<Tokenizer, DataError> {
        let num_learned = self.num_learned()?;
        // Name in errors: char, word or bpe.
        let name = format!("{:?}", self.kind).to_lowercase();
        let failed = |error: tokenizers::Error| invalid(&name, error);
        let normalizer = self.normalizer();
        let pre_tokenizer = self.pre_tokenizer().map_err(failed)?;
        let counts = count(texts, &normalizer, pre_tokenizer.as_ref()).map_err(failed)?;
        if counts.is_empty() {
            return Err(DataError::empty("the text to train a tokenizer on"));
        }
        let model = self.model(counts, num_learned).map_err(failed)?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner
            .with_normalizer(Some(normalizer))
            .with_pre_tokenizer(pre_tokenizer)
            .with_decoder(self.decoder());
        Tokenizer::from_inner(name, inner)
    }

    fn normalizer(&self) -> NormalizerWrapper {
        let mut steps: Vec<NormalizerWrapper> = vec![NFC.into()];
        if self.lowercase {
            steps.push(Lowercase.into());
        }
        match (self.kind, self.words) {
            // The first word is the same token as inside a text.
            (TokenizerKind::Bpe, _) => steps.push(Prepend::new(" ".to_owned()).into()),
            // Spaces around Chinese characters; the other steps are disabled.
            (TokenizerKind::Word, PreTokenization::Punctuation) => {
                steps.push(BertNormalizer::new(false, true, Some(false), false).into());
            }
            _ => {}
        }
        Normalizers::new(steps).into()
    }

    fn pre_tokenizer(&self) -> Result<Option<PreTokenizerWrapper>> {
        let pieces = |pattern: &str| -> Result<PreTokenizerWrapper> {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
            // Spaces are replaced, so that tokens can be displayed.
            let mark = Metaspace::new(SPACE, PrependScheme::Never, false);
            Ok(PreTokenizers::new(vec![split.into(), mark.into()]).into())
        };
        Ok(match (self.kind, self.words) {
            (TokenizerKind::Char, _) => None,
            (TokenizerKind::Word, PreTokenization::Whitespace) => Some(WhitespaceSplit.into()),
            (TokenizerKind::Word, PreTokenization::Punctuation) => Some(BertPreTokenizer.into()),
            (TokenizerKind::Bpe, PreTokenization::Whitespace) => Some(pieces(BY_SPACES)?),
            (TokenizerKind::Bpe, PreTokenization::Punctuation) => Some(pieces(BY_MARKS)?),
        })
    }

    /// Word tokens are joined by spaces without a decoder.
    fn decoder(&self) -> Option<DecoderWrapper> {
        let mut steps: Vec<DecoderWrapper> = vec![];
        if self.byte_fallback {
            steps.push(ByteFallback::new().into());
        }
        match self.kind {
            TokenizerKind::Word => return None,
            TokenizerKind::Char => steps.push(Fuse::new().into()),
            TokenizerKind::Bpe => steps.extend([
                Metaspace::new(SPACE, PrependScheme::Never, false).into(),
                Fuse::new().into(),
                Strip::new(' ', 1, 0).into(),
            ]),
        }
        Some(Decoders::new(steps).into())
    }

    fn model(&self, counts: Counts, num_learned: usize) -> Result<ModelWrapper> {
        Ok(match self.kind {
            TokenizerKind::Word => self.word_model(counts, num_learned)?.into(),
            TokenizerKind::Char => self.char_model(&counts, num_learned)?.into(),
            TokenizerKind::Bpe => self.bpe_model(&counts, num_learned)?.into(),
        })
    }

    fn word_model(&self, counts: Counts, num_learned: usize) -> Result<WordLevel> {
        let learned = most_frequent(counts, self.min_frequency, num_learned);
        let tokens = self.fixed_tokens().into_iter().chain(learned);
        WordLevel::builder()
            .vocab(tokens.zip(0..).collect())
            .unk_token(SPECIAL_TOKENS[UNK as usize].to_owned())
            .build()
    }

    fn bpe_builder(&self) -> BpeBuilder {
        BPE::builder()
            .unk_token(SPECIAL_TOKENS[UNK as usize].to_owned())
            .byte_fallback(self.byte_fallback)
    }

    /// BPE without merges: characters or bytes.
    fn char_model(&self, counts: &Counts, num_learned: usize) -> Result<BPE> {
        let learned = most_frequent(characters(counts), self.min_frequency, num_learned);
        let tokens = self.fixed_tokens().into_iter().chain(learned);
        let vocabulary: Vocab = tokens.zip(0..).collect();
        let builder = self.bpe_builder().vocab_and_merges(vocabulary, vec![]);
        builder.build()
    }

    fn bpe_model(&self, counts: &Counts, num_learned: usize) -> Result<BPE> {
        // The trainer would keep all characters, even beyond the vocabulary size, or drop arbitrary
        // ones among equally rare characters. So characters without a token are removed first.
        let alphabet = most_frequent(characters(counts), self.min_frequency, num_learned);
        let known: HashSet<&str> = alphabet.iter().map(String::as_str).collect();
        let is_known = |c: char| known.contains(c.encode_utf8(&mut [0; 4]) as &str);
        let mut words = Counts::new();
        for (word, count) in counts {
            for part in word.split(|c| !is_known(c)).filter(|part| !part.is_empty()) {
                *words.entry(part.to_owned()).or_default() += count;
            }
        }
        let fixed = self.fixed_tokens();
        let size = fixed.len() + num_learned.min(usize::MAX - fixed.len());
        let special = fixed.into_iter().map(|token| AddedToken::from(token, true));
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(size)
            .min_frequency(self.min_frequency)
            .special_tokens(special.collect())
            .build();
        let words = words
            .iter()
            .map(|(word, count)| (word.as_str().into(), *count));
        let mut model = self.bpe_builder().build()?;
        trainer.do_train(&words.collect(), &mut model)?;
        Ok(model)
    }
}

/// Frequencies in alphabetical order.
type Counts = BTreeMap<String, u64>;

/// Counts words, or whole texts without a pre-tokenizer.
fn count<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    normalizer: &NormalizerWrapper,
    pre_tokenizer: Option<&PreTokenizerWrapper>,
) -> Result<Counts> {
    // A hash map first, since most words repeat.
    let mut counts = HashMap::<String, u64>::new();
    for text in texts {
        let mut normalized = NormalizedString::from(text);
        normalizer.normalize(&mut normalized)?;
        let mut pieces = PreTokenizedString::from(normalized);
        if let Some(pre_tokenizer) = pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        for (piece, ..) in splits {
            match counts.get_mut(piece) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(piece.to_owned(), 1);
                }
            }
        }
    }
    counts.remove("");
    Ok(counts.into_iter().collect())
}

fn characters(words: &Counts) -> Counts {
    let mut counts = BTreeMap::<char, u64>::new();
    for (word, count) in words {
        for c in word.chars() {
            *counts.entry(c).or_default() += count;
        }
    }
    counts
        .into_iter()
        .map(|(c, count)| (c.to_string(), count))
        .collect()
}

/// The most frequent entries, ties in alphabetical order. Strings of special tokens are excluded.
fn most_frequent(counts: Counts, min_frequency: u64, max: usize) -> Vec<String> {
    let mut frequent: Vec<(String, u64)> = counts
        .into_iter()
        .filter(|(text, count)| *count >= min_frequency && !SPECIAL_TOKENS.contains(&text.as_str()))
        .collect();
    frequent.sort_by_key(|(_, count)| Reverse(*count));
    frequent.truncate(max);
    frequent.into_iter().map(|(text, _)| text).collect()
}
