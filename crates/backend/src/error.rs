//! What stands between a word and its device.

use zoo_spec::BackendWord;

/// Why a device could not be opened, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub(crate) String);

impl BackendError {
    /// The backend is there and would not start.
    pub(crate) fn start(word: BackendWord, reason: impl std::fmt::Display) -> Self {
        Self(format!("\"{word}\" does not start: {reason}"))
    }
}

/// Items of a message.
pub(crate) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    match items.is_empty() {
        true => "none".to_owned(),
        false => items.join(", "),
    }
}
