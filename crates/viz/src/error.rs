//! Errors of visualisations.

/// Weights or tokens that cannot be visualised.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct VizError(pub(crate) String);
