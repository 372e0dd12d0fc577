//! Tokenizer training. It is deterministic: counts are ordered, and ties are sorted alphabetically.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use tokenizers::decoders::DecoderWrapper;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, BpeTrainer, Vocab};
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
    AddedToken, NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString,
    PreTokenizer, SplitDelimiterBehavior,
};
use zoo_config::WordRule;

use super::config::{TokenizerConfig, TokenizerKind};
use super::{SPECIAL_TOKENS, Tokenizer, UNK, invalid};
use crate::DataError;

/// Replacement of spaces in tokens.
const SPACE: char = '▁';

/// Pre-tokenization patterns: merges do not cross their matches, which include a leading space.
/// Apostrophes belong to words: `don't`, `'s`.
const BY_SPACES: &str = r" ?\S+|\s";
const BY_MARKS: &str = r" ?(?:[^\s\p{P}\p{S}]|['’])+| ?[\p{P}\p{S}]+|\s";

type Result<T> = std::result::Result<T, DataError>;

impl TokenizerConfig {
    /// Trains a tokenizer on texts.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if the vocabulary has no space beyond the special tokens,
    /// [`DataError::Empty`] if there is no text.
    pub fn train<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Result<Tokenizer> {
        let num_learned = self.num_learned()?;
        let normalizer = self.normalizer();
        let pre_tokenizer = self.pre_tokenizer()?;
        let counts = count(texts, &normalizer, pre_tokenizer.as_ref())?;
        if counts.is_empty() {
            return Err(DataError::empty("the text to train a tokenizer on"));
        }
        let mut inner = match self.kind {
            TokenizerKind::Word => {
                tokenizers::Tokenizer::new(self.word_model(counts, num_learned)?)
            }
            TokenizerKind::Char => {
                tokenizers::Tokenizer::new(self.char_model(&counts, num_learned)?)
            }
            TokenizerKind::Bpe => tokenizers::Tokenizer::new(self.bpe_model(&counts, num_learned)?),
        };
        inner
            .with_normalizer(Some(normalizer))
            .with_pre_tokenizer(pre_tokenizer)
            .with_decoder(self.decoder());
        // Name in errors: char, word or bpe.
        Tokenizer::from_inner(format!("{:?}", self.kind).to_lowercase(), inner)
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
            (TokenizerKind::Word, WordRule::Marks) => {
                steps.push(BertNormalizer::new(false, true, Some(false), false).into());
            }
            _ => {}
        }
        Normalizers::new(steps).into()
    }

    fn pre_tokenizer(&self) -> Result<Option<PreTokenizerWrapper>> {
        let pieces = |pattern: &str| -> Result<PreTokenizerWrapper> {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)
                .map_err(|error| invalid("bpe", error))?;
            // Spaces are replaced, so that tokens can be displayed.
            let mark = Metaspace::new(SPACE, PrependScheme::Never, false);
            Ok(PreTokenizers::new(vec![split.into(), mark.into()]).into())
        };
        Ok(match (self.kind, self.words) {
            (TokenizerKind::Char, _) => None,
            (TokenizerKind::Word, WordRule::Spaces) => Some(WhitespaceSplit.into()),
            (TokenizerKind::Word, WordRule::Marks) => Some(BertPreTokenizer.into()),
            (TokenizerKind::Bpe, WordRule::Spaces) => Some(pieces(BY_SPACES)?),
            (TokenizerKind::Bpe, WordRule::Marks) => Some(pieces(BY_MARKS)?),
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

    fn word_model(&self, counts: Counts, num_learned: usize) -> Result<WordLevel> {
        let learned = most_frequent(counts, self.min_frequency, num_learned);
        let tokens = self.fixed_tokens().into_iter().chain(learned);
        WordLevel::builder()
            .vocab(tokens.zip(0..).collect())
            .unk_token(SPECIAL_TOKENS[UNK as usize].to_owned())
            .build()
            .map_err(|error| invalid("word", error))
    }

    /// BPE without merges: characters or bytes.
    fn char_model(&self, counts: &Counts, num_learned: usize) -> Result<BPE> {
        let learned = most_frequent(characters(counts), self.min_frequency, num_learned);
        let tokens = self.fixed_tokens().into_iter().chain(learned);
        let vocabulary: Vocab = tokens.zip(0..).collect();
        BPE::builder()
            .vocab_and_merges(vocabulary, vec![])
            .unk_token(SPECIAL_TOKENS[UNK as usize].to_owned())
            .byte_fallback(self.byte_fallback)
            .build()
            .map_err(|error| invalid("char", error))
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
        let mut model = BPE::builder()
            .unk_token(SPECIAL_TOKENS[UNK as usize].to_owned())
            .byte_fallback(self.byte_fallback)
            .build()
            .map_err(|error| invalid("bpe", error))?;
        let words = words
            .iter()
            .map(|(word, count)| (word.as_str().into(), *count));
        trainer
            .do_train(&words.collect(), &mut model)
            .map_err(|error| invalid("bpe", error))?;
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
    let to_error = |error: tokenizers::Error| invalid("training", error);
    // A hash map first, since most words repeat.
    let mut counts = HashMap::<String, u64>::new();
    let mut add = |word: &str| match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.to_owned(), 1);
        }
    };
    for text in texts {
        let mut normalized = NormalizedString::from(text);
        normalizer.normalize(&mut normalized).map_err(to_error)?;
        match pre_tokenizer {
            None => add(normalized.get()),
            Some(pre_tokenizer) => {
                let mut pieces = PreTokenizedString::from(normalized);
                pre_tokenizer.pre_tokenize(&mut pieces).map_err(to_error)?;
                let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
                for (piece, ..) in splits {
                    add(piece);
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
