//! What cannot be scored, and why.

/// Output that cannot be held against what was expected: what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetricError(pub(super) String);
