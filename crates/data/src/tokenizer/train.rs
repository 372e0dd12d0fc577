//! A tokenizer learned from text. What is learned depends on the text alone: counts are kept
//! in order, and what is equally frequent goes by its letters.

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
use super::{SPECIAL_TOKENS, Tokenizer, UNKNOWN, failed};
use crate::DataError;

/// What a space at the beginning of a piece is written as.
const SPACE: char = '▁';

/// Pieces of text that merges do not cross, with the space before them. Apostrophes belong to
/// words: `don't`, `'s`.
const BY_SPACES: &str = r" ?\S+|\s";
const BY_MARKS: &str = r" ?(?:[^\s\p{P}\p{S}]|['’])+| ?[\p{P}\p{S}]+|\s";

type Result<T> = std::result::Result<T, DataError>;

impl TokenizerConfig {
    /// Learns a tokenizer from texts.
    ///
    /// # Errors
    ///
    /// [`DataError::Range`] if there is no room for a token but the special ones,
    /// [`DataError::Empty`] if there is nothing to learn from.
    pub fn train<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> Result<Tokenizer> {
        let room = self.room()?;
        let normalizer = self.normalizer();
        let pre_tokenizer = self.pre_tokenizer()?;
        let counts = count(texts, &normalizer, pre_tokenizer.as_ref())?;
        if counts.is_empty() {
            return Err(DataError::Empty {
                what: "the text to train a tokenizer on".to_owned(),
            });
        }
        let mut inner = match self.kind {
            TokenizerKind::Word => tokenizers::Tokenizer::new(self.word_model(counts, room)?),
            TokenizerKind::Char => tokenizers::Tokenizer::new(self.char_model(&counts, room)?),
            TokenizerKind::Bpe => tokenizers::Tokenizer::new(self.bpe_model(&counts, room)?),
        };
        inner
            .with_normalizer(Some(normalizer))
            .with_pre_tokenizer(pre_tokenizer)
            .with_decoder(self.decoder());
        // What it is called in errors: char, word or bpe.
        Tokenizer::checked(format!("{:?}", self.kind).to_lowercase(), inner)
    }

    fn normalizer(&self) -> NormalizerWrapper {
        let mut steps: Vec<NormalizerWrapper> = vec![NFC.into()];
        if self.lowercase {
            steps.push(Lowercase.into());
        }
        match (self.kind, self.words) {
            // The first word is the same token as in the middle of a text.
            (TokenizerKind::Bpe, _) => steps.push(Prepend::new(" ".to_owned()).into()),
            // Spaces around each Chinese character; the rest of it is turned off.
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
                .map_err(|error| failed("bpe", error.as_ref()))?;
            // Written with a mark for the space, so that tokens can be shown.
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

    /// Words are joined by spaces, which needs no decoder.
    fn decoder(&self) -> Option<DecoderWrapper> {
        let mut steps: Vec<DecoderWrapper> = match self.byte_fallback {
            true => vec![ByteFallback::new().into()],
            false => vec![],
        };
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

    fn word_model(&self, counts: Counts, room: usize) -> Result<WordLevel> {
        let learned = most_frequent(counts, self.min_frequency, room);
        let tokens = self.fixed().into_iter().chain(learned);
        WordLevel::builder()
            .vocab(tokens.zip(0..).collect())
            .unk_token(SPECIAL_TOKENS[UNKNOWN as usize].to_owned())
            .build()
            .map_err(|error| failed("word", error.as_ref()))
    }

    /// BPE without merges: single characters, or their bytes.
    fn char_model(&self, counts: &Counts, room: usize) -> Result<BPE> {
        let learned = most_frequent(characters(counts), self.min_frequency, room);
        let tokens = self.fixed().into_iter().chain(learned);
        let vocabulary: Vocab = tokens.zip(0..).collect();
        BPE::builder()
            .vocab_and_merges(vocabulary, vec![])
            .unk_token(SPECIAL_TOKENS[UNKNOWN as usize].to_owned())
            .byte_fallback(self.byte_fallback)
            .build()
            .map_err(|error| failed("char", error.as_ref()))
    }

    fn bpe_model(&self, counts: &Counts, room: usize) -> Result<BPE> {
        // The trainer would keep every character, also beyond the size, or drop any of those
        // that are equally rare. So those without a token are cut out beforehand.
        let alphabet = most_frequent(characters(counts), self.min_frequency, room);
        let known: HashSet<&str> = alphabet.iter().map(String::as_str).collect();
        let is_known = |c: char| known.contains(c.encode_utf8(&mut [0; 4]) as &str);
        let mut words = Counts::new();
        for (word, count) in counts {
            for part in word.split(|c| !is_known(c)).filter(|part| !part.is_empty()) {
                *words.entry(part.to_owned()).or_default() += count;
            }
        }
        let fixed = self.fixed();
        let size = fixed.len() + room.min(usize::MAX - fixed.len());
        let special = fixed.into_iter().map(|token| AddedToken::from(token, true));
        let trainer = BpeTrainer::builder()
            .show_progress(false)
            .vocab_size(size)
            .min_frequency(self.min_frequency)
            .special_tokens(special.collect())
            .build();
        let mut model = BPE::builder()
            .unk_token(SPECIAL_TOKENS[UNKNOWN as usize].to_owned())
            .byte_fallback(self.byte_fallback)
            .build()
            .map_err(|error| failed("bpe", error.as_ref()))?;
        let words = words
            .iter()
            .map(|(word, count)| (word.as_str().into(), *count));
        trainer
            .do_train(&words.collect(), &mut model)
            .map_err(|error| failed("bpe", error.as_ref()))?;
        Ok(model)
    }
}

/// How often something was seen, in the order of its letters.
type Counts = BTreeMap<String, u64>;

/// Words, or whole texts where nothing cuts them.
fn count<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    normalizer: &NormalizerWrapper,
    pre_tokenizer: Option<&PreTokenizerWrapper>,
) -> Result<Counts> {
    let trouble = |error: tokenizers::Error| failed("training", error.as_ref());
    // By hash first: most words have been seen before.
    let mut counts = HashMap::<String, u64>::new();
    let mut add = |word: &str| match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => {
            counts.insert(word.to_owned(), 1);
        }
    };
    for text in texts {
        let mut normalized = NormalizedString::from(text);
        normalizer.normalize(&mut normalized).map_err(trouble)?;
        match pre_tokenizer {
            None => add(normalized.get()),
            Some(pre_tokenizer) => {
                let mut pieces = PreTokenizedString::from(normalized);
                pre_tokenizer.pre_tokenize(&mut pieces).map_err(trouble)?;
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
    let written = counts.into_iter().map(|(c, count)| (c.to_string(), count));
    written.collect()
}

/// The most frequent first; what is equally frequent in the order of its letters. What is
/// written like a special token has none of its own.
fn most_frequent(counts: Counts, min_frequency: u64, room: usize) -> Vec<String> {
    let mut kept: Vec<(String, u64)> = counts
        .into_iter()
        .filter(|(text, count)| *count >= min_frequency && !SPECIAL_TOKENS.contains(&text.as_str()))
        .collect();
    kept.sort_by_key(|(_, count)| Reverse(*count));
    kept.truncate(room);
    kept.into_iter().map(|(text, _)| text).collect()
}
