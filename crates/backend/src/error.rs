//! Errors of opening a device.

use zoo_spec::BackendId;

/// Why a device could not be opened, with a `help:` line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BackendError(pub(crate) String);

impl BackendError {
    pub(crate) fn start(id: BackendId, reason: impl std::fmt::Display) -> Self {
        Self(format!("\"{id}\" failed to start: {reason}"))
    }
}

pub(crate) fn list<T: std::fmt::Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    if items.is_empty() {
        return "none".to_owned();
    }
    items.join(", ")
}
