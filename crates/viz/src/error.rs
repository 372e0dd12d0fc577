//! What cannot be drawn, and why.

/// Weights or tokens that make no picture: which, and what is wrong with them.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct PictureError(pub(crate) String);
