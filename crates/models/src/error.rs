//! Errors of configs, inputs, generation and weight files.

use std::path::{Path, PathBuf};

use zoo_attention::{AttentionError, Mechanism};
use zoo_spec::keys::InvalidValue;
use zoo_spec::{Printable, Tying};

/// A model cannot be created, does not accept its input, or its weights cannot be read, written or
/// applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// A config field is out of range.
    #[error("{} must be {}, got {}", .0.key, .0.allowed, .0.got)]
    Range(InvalidValue),
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
    #[error("row {0} has an empty prompt; generation needs at least one token")]
    EmptyPrompt(usize),
    /// A weight file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A weight file already exists.
    #[error("{} already exists\n  help: choose another name", .0.display())]
    Exists(PathBuf),
    /// The extension of a weight file is not a supported format.
    #[error(
        "{}: unsupported weight format\n  help: write .safetensors or .bpk; read these, .pt, .pth \
         or .bin",
        .0.display()
    )]
    Extension(PathBuf),
    /// A weight file does not have the format of its extension, or is truncated.
    #[error("{}: invalid or truncated {format} file: {}", path.display(), Printable(reason))]
    InvalidFile {
        /// File.
        path: PathBuf,
        /// Expected format.
        format: &'static str,
        /// Cause.
        reason: String,
    },
    /// A weight file declares more data than it has.
    #[error(
        "{}: {}, but the file has {file_len} bytes\n  help: get the file again; if it holds \
         expanded views or is compressed, save it with tensor.clone() for each tensor, or as \
         .safetensors",
        path.display(),
        Printable(declared)
    )]
    TooLarge {
        /// File.
        path: PathBuf,
        /// Declaration that is too large.
        declared: String,
        /// Size of the file in bytes.
        file_len: u128,
    },
    /// The checksum of a weight file does not match.
    #[error(
        "{}: checksum mismatch: expected {expected}, got {got}\n  help: the file is corrupted; \
         get it again",
        path.display()
    )]
    Checksum {
        /// File.
        path: PathBuf,
        /// Checksum stored in the file.
        expected: String,
        /// Checksum of the tensors.
        got: String,
    },
    /// A model folder of Hugging Face's transformers cannot be used.
    #[error("{}: {}\n  help: {help}", path.display(), Printable(reason))]
    Folder {
        /// The folder, or the file in it.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What can be done.
        help: &'static str,
    },
    /// A parameter of the model is missing in the weights.
    #[error(
        "key {} is missing{}",
        Printable(key),
        nearest.as_ref().map_or(String::new(), |near| format!(" (closest unused key: {})", Printable(near)))
    )]
    Missing {
        /// Key of the tensor.
        key: String,
        /// Unused key with the most similar name.
        nearest: Option<String>,
    },
    /// Two tensors are renamed to the same key.
    #[error(
        "keys {} and {} are both renamed to {}",
        Printable(first),
        Printable(second),
        Printable(key)
    )]
    DuplicateKey {
        /// New key.
        key: String,
        /// First key in the file.
        first: String,
        /// Second key in the file.
        second: String,
    },
    /// A tensor has the wrong shape or dtype.
    #[error(
        "tensor {}: expected {expected}, got {got}\n  help: {help}",
        Printable(key)
    )]
    Tensor {
        /// Key of the tensor, also in the file.
        key: String,
        /// Expected shape or dtype.
        expected: String,
        /// Actual shape or dtype.
        got: String,
        /// What can be done.
        help: &'static str,
    },
    /// The model has no parameters with these keys.
    #[error("unexpected keys: {}{}", Printable(&keys.join(", ")), match more { 0 => String::new(), more => format!(" and {more} more") })]
    Unexpected {
        /// First of them.
        keys: Vec<String>,
        /// Number of others.
        more: usize,
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
        Err(Self::Range(InvalidValue {
            key: field.to_owned(),
            allowed: allowed.into(),
            got: got.to_string(),
        }))
    }

    /// Checks that source and target embedding can be shared if `tie_embeddings` asks for it.
    pub(crate) fn check_tying(
        tie_embeddings: Tying,
        [source, target]: [usize; 2],
    ) -> Result<(), Self> {
        let allowed = format!(
            "none or decoder where source_vocabulary = {source} and target_vocabulary = {target} \
             differ"
        );
        let is_valid = tie_embeddings != Tying::All || source == target;
        Self::require(is_valid, "tie_embeddings", allowed, tie_embeddings.name())
    }

    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File {
            path: path.into(),
            source,
        }
    }
}

impl From<InvalidValue> for ModelError {
    fn from(error: InvalidValue) -> Self {
        Self::Range(error)
    }
}
