//! Errors of configs, inputs and generation.

use zoo_attention::{AttentionError, Mechanism};
use zoo_spec::Tying;
use zoo_spec::keys::InvalidValue;

/// A model cannot be created, or does not accept its input.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A config field is out of range.
    #[error("{field} must be {allowed}, got {got}")]
    Range {
        /// Name of the field.
        field: String,
        /// Allowed values.
        allowed: String,
        /// Actual value.
        got: String,
    },
    /// An attention module cannot be created, or does not support an operation.
    #[error("{field}: {source}")]
    Attention {
        /// Config field of the module.
        field: &'static str,
        /// Cause.
        source: AttentionError,
    },
    /// A mechanism does not support the attention it is configured for.
    #[error("{field} = {mechanism} cannot be used for {usage}: {reason}")]
    Mechanism {
        /// Config field.
        field: &'static str,
        /// Mechanism.
        mechanism: Mechanism,
        /// Kind of attention it is configured for.
        usage: &'static str,
        /// Why it is not supported.
        reason: &'static str,
    },
    /// An attention module does not support an operation.
    #[error(transparent)]
    Unsupported(#[from] AttentionError),
    /// A token is outside of the vocabulary.
    #[error(
        "token {id} at position {position} of {sequence} is outside of the vocabulary: it has \
         {vocabulary} tokens, 0 to {}",
        vocabulary.saturating_sub(1)
    )]
    Token {
        /// The sequence, for example `row 3` or `sentence 1 of document 2`.
        sequence: String,
        /// Position in the sequence.
        position: usize,
        /// Token id.
        id: u32,
        /// Vocabulary size.
        vocabulary: usize,
    },
    /// A batch has no rows.
    #[error("a batch needs at least one row, got none")]
    EmptyBatch,
    /// Generation was called with a model on an autodiff device, where dropout is active.
    #[error(
        "cannot generate with a model on an autodiff device\n  help: use `model.valid()`, which \
         moves it to the inner device"
    )]
    AutodiffDevice,
    /// A sequence is longer than the model's context.
    #[error("{sequence} has {length} tokens; the model's context is {max}")]
    TooLong {
        /// The sequence, for example `row 3` or `sentence 1 of document 2`.
        sequence: String,
        /// Its length.
        length: usize,
        /// Maximum length.
        max: usize,
    },
    /// A prompt has no tokens.
    #[error("row {row} has an empty prompt; generation needs at least one token")]
    EmptyPrompt {
        /// Index of the prompt.
        row: usize,
    },
}

impl ModelError {
    pub(crate) fn at_least(field: &str, min: usize, got: usize) -> Result<(), Self> {
        Self::require(got >= min, field, format!("at least {min}"), got)
    }

    pub(crate) fn require(
        is_valid: bool,
        field: &str,
        allowed: impl Into<String>,
        got: impl ToString,
    ) -> Result<(), Self> {
        if is_valid {
            return Ok(());
        }
        Err(Self::Range {
            field: field.to_owned(),
            allowed: allowed.into(),
            got: got.to_string(),
        })
    }

    /// Checks that source and target embedding can be shared if `tying` asks for it.
    pub(crate) fn check_tying(tying: Tying, [source, target]: [usize; 2]) -> Result<(), Self> {
        let allowed = format!(
            "none or decoder where source_vocabulary = {source} and target_vocabulary = {target} \
             differ"
        );
        let is_valid = tying != Tying::All || source == target;
        Self::require(is_valid, "tying", allowed, tying.name())
    }
}

impl From<InvalidValue> for ModelError {
    fn from(error: InvalidValue) -> Self {
        Self::Range {
            field: error.key,
            allowed: error.allowed,
            got: error.got,
        }
    }
}
