//! Tokenizer configuration.

use zoo_config::PreTokenization;

use super::SPECIAL_TOKENS;
use crate::DataError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenizerKind {
    Char,
    Word,
    /// Byte-pair encoding: Sennrich et al.,
    /// [Neural Machine Translation of Rare Words with Subword Units](https://arxiv.org/abs/1508.07909), 2015.
    Bpe,
}

/// Configuration of a [`Tokenizer`](super::Tokenizer), created by [`train`](Self::train).
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
    pub(super) words: PreTokenization,
    pub(super) byte_fallback: bool,
}

impl TokenizerConfig {
    fn new(kind: TokenizerKind, size: Option<usize>) -> Self {
        Self {
            kind,
            size,
            min_frequency: 1,
            lowercase: false,
            words: PreTokenization::Punctuation,
            byte_fallback: kind == TokenizerKind::Bpe,
        }
    }

    /// One token per character, vocabulary of any size.
    pub fn chars() -> Self {
        Self::new(TokenizerKind::Char, None)
    }

    /// One token per word, vocabulary of any size.
    pub fn words() -> Self {
        Self::new(TokenizerKind::Word, None)
    }

    /// Byte-pair encoding with byte fallback, and a vocabulary of `size` tokens including the
    /// special ones.
    pub fn bpe(size: usize) -> Self {
        Self::new(TokenizerKind::Bpe, Some(size))
    }

    /// Maximum vocabulary size, including special tokens. Default: unlimited, except for BPE.
    #[must_use]
    pub fn with_size(mut self, size: usize) -> Self {
        self.size = Some(size);
        self
    }

    /// Minimum frequency of a token. Default: 1.
    #[must_use]
    pub fn with_min_frequency(mut self, count: u64) -> Self {
        self.min_frequency = count;
        self
    }

    /// Whether text is lowercased. Default: no.
    #[must_use]
    pub fn with_lowercase(mut self, lowercase: bool) -> Self {
        self.lowercase = lowercase;
        self
    }

    /// Where words are split. Default: at spaces and punctuation.
    #[must_use]
    pub fn with_pre_tokenization(mut self, rule: PreTokenization) -> Self {
        self.words = rule;
        self
    }

    /// Whether characters outside of the vocabulary are encoded as UTF-8 bytes, which adds 256
    /// tokens, or as `<unk>`. Unknown words are always `<unk>`. Default: only for BPE.
    #[must_use]
    pub fn with_byte_fallback(mut self, bytes: bool) -> Self {
        self.byte_fallback = bytes && self.kind != TokenizerKind::Word;
        self
    }

    /// Special tokens and byte tokens.
    pub(super) fn fixed_tokens(&self) -> Vec<String> {
        let bytes = (0..=255_u8).map(|byte| format!("<0x{byte:02X}>"));
        let bytes = bytes.filter(|_| self.byte_fallback);
        SPECIAL_TOKENS
            .map(str::to_owned)
            .into_iter()
            .chain(bytes)
            .collect()
    }

    /// Number of tokens that can be learned.
    pub(super) fn num_learned(&self) -> Result<usize, DataError> {
        let fixed = self.fixed_tokens().len();
        let size = self.size.unwrap_or(usize::MAX);
        DataError::at_least("tokenizer size", fixed + 1, size)?;
        Ok(size - fixed)
    }
}
