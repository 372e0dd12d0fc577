//! What can be wrong with a file of weights.

use std::path::PathBuf;

use zoo_spec::Printable;

/// Weights that cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The file cannot be opened, or something else is there already.
    #[error("{}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is there already.
    #[error("{} is there already, and is left as it is: choose another name", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// The name says no format.
    #[error(
        "{}: weights are written as .safetensors or .bpk, and read from these and from .pt, .pth and .bin",
        path.display()
    )]
    Extension {
        /// Which file.
        path: PathBuf,
    },
    /// The file is not what its name says, or not all of it is there.
    #[error("{}: not a whole {format} file: {}", path.display(), Printable(why))]
    Broken {
        /// Which file.
        path: PathBuf,
        /// What it should be.
        format: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The file declares more than it has.
    #[error(
        "{}: {}, and the file has {file_len} bytes\n  do: get the file again; if it holds \
         expanded views or is compressed, save it with tensor.clone() for each tensor, or as \
         .safetensors",
        path.display(),
        Printable(what)
    )]
    TooLarge {
        /// Which file.
        path: PathBuf,
        /// What is too large.
        what: String,
        /// The bytes there are.
        file_len: u128,
    },
    /// The numbers are not those that were written.
    #[error(
        "{}: the numbers have changed since they were written: their checksum is {got}, and was {expected}",
        path.display()
    )]
    Checksum {
        /// Which file.
        path: PathBuf,
        /// The one that was written.
        expected: String,
        /// That of what is there.
        got: String,
    },
    /// A tensor is not there.
    #[error(
        "key {} is missing{}",
        Printable(key),
        nearest.as_ref().map_or(String::new(), |near| format!(": is it {}?", Printable(near)))
    )]
    Missing {
        /// What it is called.
        key: String,
        /// One that is there, and called almost so.
        nearest: Option<String>,
    },
    /// Two tensors would have one name.
    #[error(
        "keys {} and {} would both be {}",
        Printable(first),
        Printable(second),
        Printable(key)
    )]
    SameName {
        /// The name.
        key: String,
        /// What one is called in the file.
        first: String,
        /// And the other.
        second: String,
    },
    /// A tensor has another shape.
    #[error("key {} must be {expected:?}, got {got:?}", Printable(key))]
    Shape {
        /// What it is called, in the file too.
        key: String,
        /// The shape of the model's.
        expected: Vec<usize>,
        /// The shape of the file's.
        got: Vec<usize>,
    },
    /// A tensor that has to be turned is no matrix.
    #[error("key {} must be a matrix, got {got:?}", Printable(key))]
    NoMatrix {
        /// What it is called in the file.
        key: String,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A tensor that is several in one cannot be cut.
    #[error(
        "key {} is {parts} matrices in one, and cannot be {got:?}",
        Printable(key)
    )]
    Parts {
        /// What it is called in the file.
        key: String,
        /// How many it should be.
        parts: usize,
        /// Its shape.
        got: Vec<usize>,
    },
    /// A tensor holds another kind of numbers.
    #[error("key {} must hold {expected}, got {got}", Printable(key))]
    Kind {
        /// What it is called, in the file too.
        key: String,
        /// The model's.
        expected: String,
        /// The file's.
        got: String,
    },
    /// There are tensors that the model has no use for.
    #[error("the model has no {}{}", Printable(&keys.join(", ")), match more { 0 => String::new(), more => format!(" and {more} more") })]
    Unexpected {
        /// The first of them.
        keys: Vec<String>,
        /// How many besides.
        more: usize,
    },
}
