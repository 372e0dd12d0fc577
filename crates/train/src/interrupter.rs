//! A request to stop a training run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops a run from another thread: it finishes the current step and writes a checkpoint.
#[derive(Debug, Clone, Default)]
pub struct Interrupter {
    is_stopped: Arc<AtomicBool>,
}

impl Interrupter {
    /// No request yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to stop.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether the run has been asked to stop.
    pub fn should_stop(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }
}
