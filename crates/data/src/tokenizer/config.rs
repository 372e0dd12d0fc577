//! How a tokenizer is made.

use zoo_config::WordRule;

use super::SPECIAL_TOKENS;
use crate::DataError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenizerKind {
    /// A character.
    Char,
    /// A word.
    Word,
    /// A piece of a word, as often seen together: Sennrich et al.,
    /// [Neural Machine Translation of Rare Words with Subword Units](https://arxiv.org/abs/1508.07909), 2015.
    Bpe,
}

/// Configuration of a [`Tokenizer`](super::Tokenizer); `train` makes one.
///
/// ```
/// # use zoo_data::{DataError, TokenizerConfig};
/// let tokenizer = TokenizerConfig::chars().train(["好久不见", "long time"])?;
/// let ids = tokenizer.encode("见 me")?;
/// assert_eq!(tokenizer.decode(&ids)?, "见 me");
/// # Ok::<(), DataError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenizerConfig {
    pub(super) kind: TokenizerKind,
    pub(super) size: Option<usize>,
    pub(super) min_frequency: u64,
    pub(super) lowercase: bool,
    pub(super) words: WordRule,
    pub(super) byte_fallback: bool,
}

impl TokenizerConfig {
    fn new(kind: TokenizerKind, size: Option<usize>) -> Self {
        Self {
            kind,
            size,
            min_frequency: 1,
            lowercase: false,
            words: WordRule::Marks,
            byte_fallback: kind == TokenizerKind::Bpe,
        }
    }

    /// A token a character, as many as there are.
    pub fn chars() -> Self {
        Self::new(TokenizerKind::Char, None)
    }

    /// A token a word, as many as there are.
    pub fn words() -> Self {
        Self::new(TokenizerKind::Word, None)
    }

    /// Pieces of words, so many with the special ones, and bytes of what was never seen.
    pub fn bpe(size: usize) -> Self {
        Self::new(TokenizerKind::Bpe, Some(size))
    }

    /// How many tokens there may be, the special ones counted. Default: any number, but for
    /// BPE.
    #[must_use]
    pub fn with_size(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }

    /// How often something must be seen to become a token. Default: once.
    #[must_use]
    pub fn with_min_frequency(mut self, count: u64) -> Self {
        self.min_frequency = count;
        self
    }

    /// Whether all letters are made small ones first. Default: no.
    #[must_use]
    pub fn with_lowercase(mut self, lowercase: bool) -> Self {
        self.lowercase = lowercase;
        self
    }

    /// Where words begin and end. Default: at spaces and marks.
    #[must_use]
    pub fn with_words(mut self, rule: WordRule) -> Self {
        self.words = rule;
        self
    }

    /// Whether a character that is not in the vocabulary becomes the tokens of its bytes, of
    /// which there are then 256, or an unknown one. Words are unknown in any case. Default: bytes
    /// for BPE.
    #[must_use]
    pub fn with_byte_fallback(mut self, bytes: bool) -> Self {
        self.byte_fallback = bytes && self.kind != TokenizerKind::Word;
        self
    }

    /// Tokens that are there before anything is learned.
    pub(super) fn fixed(&self) -> Vec<String> {
        let bytes = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>"));
        let bytes = bytes.filter(|_| self.byte_fallback);
        SPECIAL_TOKENS
            .map(str::to_owned)
            .into_iter()
            .chain(bytes)
            .collect()
    }

    /// Room for tokens that are learned.
    pub(super) fn room(&self) -> Result<usize, DataError> {
        let fixed = self.fixed().len();
        let size = self.size.unwrap_or(usize::MAX);
        DataError::at_least("tokenizer size", fixed + 1, size)?;
        Ok(size - fixed)
    }
}
