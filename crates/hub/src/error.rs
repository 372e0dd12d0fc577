//! What can go wrong between the hub and a file.

use std::path::PathBuf;

use zoo_spec::UnknownWord;

/// A data set that could not be brought.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// There is no Python.
    #[error(
        "the hub's data sets are loaded by Python, and there is no Python 3 on the path\n  \
         do: install Python 3.10 or later; on Debian: apt-get install python3 python3-venv"
    )]
    NoPython,
    /// Python's packages cannot be installed.
    #[error(
        "Python's package datasets, and what it needs, could not be installed into {}: {why}\n  \
         do: see that pip reaches PyPI (PIP_INDEX_URL names another place), that there is room, and \
         on Debian that python3-venv is installed; then remove that folder and try again",
        folder.display()
    )]
    Packages {
        /// Python's folder.
        folder: PathBuf,
        /// What was said.
        why: String,
    },
    /// Python could not load the data set.
    #[error(
        "{name} could not be loaded ({why}); Python's own words are above\n  \
         do: look at https://huggingface.co/datasets whether it is called so, and whether a subset \
         must be named (--subset)\n  \
         see that this machine reaches the hub (HF_ENDPOINT names a mirror), and set HF_TOKEN if the \
         data set wants a login"
    )]
    Load {
        /// The data set, with its subset.
        name: String,
        /// How Python ended.
        why: String,
    },
    /// The database cannot be read.
    #[error(
        "{} cannot be read as a data set: {why}\n  do: remove it, and it is loaded again",
        path.display()
    )]
    Database {
        /// Where it is.
        path: PathBuf,
        /// What was said.
        why: String,
    },
    /// No split is called so.
    #[error("{unknown}\n  do: say which is which: --split {part}=NAME")]
    UnknownSplit {
        /// What it was to become.
        part: &'static str,
        /// With the nearest one.
        unknown: UnknownWord,
    },
    /// No field is called so.
    #[error("split {split}: {unknown}")]
    UnknownField {
        /// Where it was looked for.
        split: String,
        /// With the nearest one.
        unknown: UnknownWord,
    },
    /// A field that is to be text is bytes.
    #[error(
        "split {split}, row {row}: {field} is {bytes} bytes, as of a picture or a list, and no text"
    )]
    NoText {
        /// The split.
        split: String,
        /// The row, counted from 1.
        row: usize,
        /// The field.
        field: String,
        /// How many.
        bytes: usize,
    },
    /// Nothing is left to write.
    #[error("split {split} has {rows} rows, and none that can be used")]
    Empty {
        /// The split.
        split: String,
        /// Its rows.
        rows: usize,
    },
    /// A file would be lost.
    #[error(
        "{} is there already\n  do: choose another --to, or have it replaced with --overwrite",
        .0.display()
    )]
    Exists(PathBuf),
    /// A file or folder cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl HubError {
    /// For `map_err`, where a path is written to.
    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}
