//! What the loss is told besides the logits.

use std::sync::Arc;

/// The class of a row that does not count.
pub(super) const PADDING: u32 = u32::MAX;

/// What the op is told besides the logits.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) classes: usize,
    pub(crate) targets: Arc<[u32]>,
    pub(crate) smoothing: f64,
}
