//! What a place does to a state, and which place comes first.

use serde::{Deserialize, Serialize};

pub use zoo_spec::Cell;

/// Which place comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The first one.
    Forward,
    /// The last one of each row.
    Backward,
    /// Both, side by side: what goes forward, then what goes backward.
    Both,
}

impl Direction {
    /// Passes over a sequence.
    pub fn passes(self) -> usize {
        match self {
            Self::Forward | Self::Backward => 1,
            Self::Both => 2,
        }
    }

    /// Whether a pass, counted from 0, goes backward.
    pub(crate) fn is_backward(self, pass: usize) -> bool {
        match self {
            Self::Forward => false,
            Self::Backward => true,
            Self::Both => pass == 1,
        }
    }
}
