//! What a person can get wrong, with the field or the token it is about.

use zoo_attention::{CannotDecode, Mechanism, MultiHeadError, NoEntropy};
use zoo_spec::Tying;
use zoo_spec::keys::InvalidValue;

/// A model that cannot be made, or cannot take what it is given.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A field of a config is out of range.
    #[error("{field} must be {allowed}, got {got}")]
    Range {
        /// What it is called in the config.
        field: String,
        /// What it may be.
        allowed: String,
        /// What it is.
        got: String,
    },
    /// An attention cannot be made.
    #[error("{field}: {source}")]
    Attention {
        /// Which of the model's.
        field: &'static str,
        /// Why.
        source: MultiHeadError,
    },
    /// An attention that has to go place by place cannot.
    #[error("{field}: {source}")]
    CannotDecode {
        /// Which of the model's.
        field: &'static str,
        /// Why.
        source: CannotDecode,
    },
    /// A mechanism does not support what the model uses it for.
    #[error("{field} = {mechanism} cannot be used for {what}: {reason}")]
    Mechanism {
        /// The field of the config.
        field: &'static str,
        /// The mechanism.
        mechanism: Mechanism,
        /// What it was to be used for.
        what: &'static str,
        /// Why it cannot.
        reason: &'static str,
    },
    /// The weights of an attention have no entropy.
    #[error(transparent)]
    NoEntropy(#[from] NoEntropy),
    /// A token is outside of the vocabulary.
    #[error(
        "token {id} at place {place} of row {row} is outside of the vocabulary: it has {vocabulary} \
         tokens, 0 to {}",
        vocabulary.saturating_sub(1)
    )]
    Token {
        /// Which sequence.
        row: usize,
        /// Where in it.
        place: usize,
        /// The token.
        id: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// A batch of nothing.
    #[error("a batch must have a row at least, got none")]
    NoRows,
    /// A model that would forget while it generates, and remember all for a gradient.
    #[error(
        "the model is on a device that takes gradients: generate with one that does not, which \
         its `valid` gives"
    )]
    TakesGradients,
    /// A sequence is longer than the model has positions for.
    #[error("row {row} has {length} tokens, and the model has positions for {longest} of them")]
    TooLong {
        /// Which sequence.
        row: usize,
        /// How long it is.
        length: usize,
        /// How long it may be.
        longest: usize,
    },
    /// There is nothing to continue.
    #[error("row {row} has no prompt: a text is continued from one token at least")]
    NoPrompt {
        /// Which one.
        row: usize,
    },
    /// A word of a document is outside of the vocabulary.
    #[error(
        "token {id} at place {place} of sentence {sentence} of document {document} is outside of \
         the vocabulary: it has {vocabulary} tokens, 0 to {}",
        vocabulary.saturating_sub(1)
    )]
    DocumentToken {
        /// Which document.
        document: usize,
        /// Which sentence of it.
        sentence: usize,
        /// Where in that.
        place: usize,
        /// The token.
        id: u32,
        /// How many there are.
        vocabulary: usize,
    },
    /// A sentence of a document is longer than the model has positions for.
    #[error(
        "sentence {sentence} of document {document} has {length} tokens, and the model has \
         positions for {longest} of them"
    )]
    SentenceTooLong {
        /// Which document.
        document: usize,
        /// Which sentence of it.
        sentence: usize,
        /// How long it is.
        length: usize,
        /// How long it may be.
        longest: usize,
    },
}

impl ModelError {
    pub(crate) fn at_least(field: &str, least: usize, got: usize) -> Result<(), Self> {
        Self::require(got >= least, field, format!("at least {least}"), got)
    }

    /// `field` must be `allowed`, and is `got`.
    pub(crate) fn require(
        is_fine: bool,
        field: &str,
        allowed: impl Into<String>,
        got: impl ToString,
    ) -> Result<(), Self> {
        if is_fine {
            return Ok(());
        }
        Err(Self::Range {
            field: field.to_owned(),
            allowed: allowed.into(),
            got: got.to_string(),
        })
    }

    /// That vectors of two vocabularies can be the same.
    pub(crate) fn check_tied(tying: Tying, [source, target]: [usize; 2]) -> Result<(), Self> {
        let allowed = format!(
            "none or decoder where source_vocabulary = {source} and target_vocabulary = {target} \
             differ"
        );
        let is_fine = tying != Tying::All || source == target;
        Self::require(is_fine, "tying", allowed, tying.word())
    }
}

impl From<InvalidValue> for ModelError {
    fn from(wrong: InvalidValue) -> Self {
        Self::Range {
            field: wrong.key,
            allowed: wrong.allowed,
            got: wrong.got,
        }
    }
}
