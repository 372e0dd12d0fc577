//! Errors of weight files.

use std::path::PathBuf;

use zoo_spec::Printable;

/// Weights cannot be read, written or applied to a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// The file already exists.
    #[error("{} already exists\n  help: choose another name", path.display())]
    Exists {
        /// File.
        path: PathBuf,
    },
    /// The file extension is not a supported format.
    #[error(
        "{}: unsupported weight format\n  help: write .safetensors or .bpk; read these, .pt, .pth \
         or .bin",
        path.display()
    )]
    Extension {
        /// File.
        path: PathBuf,
    },
    /// The file does not have the format of its extension, or is truncated.
    #[error("{}: invalid or truncated {format} file: {}", path.display(), Printable(reason))]
    InvalidFile {
        /// File.
        path: PathBuf,
        /// Expected format.
        format: &'static str,
        /// Cause.
        reason: String,
    },
    /// The file declares more data than it has.
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
    /// The checksum does not match.
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
    /// A tensor is missing.
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
    /// A tensor has the wrong shape.
    #[error("key {} must be {expected:?}, got {got:?}", Printable(key))]
    Shape {
        /// Key of the tensor, also in the file.
        key: String,
        /// Shape in the model.
        expected: Vec<usize>,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A tensor to transpose is not a matrix.
    #[error("key {} must be a matrix, got {got:?}", Printable(key))]
    NotAMatrix {
        /// Key in the file.
        key: String,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A stacked tensor cannot be split.
    #[error(
        "key {} must hold {parts} stacked matrices, got shape {got:?}",
        Printable(key)
    )]
    Split {
        /// Key in the file.
        key: String,
        /// Expected number of parts.
        parts: usize,
        /// Shape in the file.
        got: Vec<usize>,
    },
    /// A tensor has the wrong dtype.
    #[error("key {} must hold {expected}, got {got}", Printable(key))]
    Dtype {
        /// Key of the tensor, also in the file.
        key: String,
        /// Expected dtype.
        expected: String,
        /// Actual dtype.
        got: String,
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
