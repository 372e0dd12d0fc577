//! Errors of metrics.

/// Invalid input of a metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MetricError(pub(super) String);
