//! Cell type and direction of a recurrence.

use serde::{Deserialize, Serialize};

pub use zoo_spec::Cell;

/// Direction in which a layer processes a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the first position to the last.
    Forward,
    /// From each row's last position to the first.
    Backward,
    /// Bidirectional; outputs are concatenated, forward first.
    Both,
}

impl Direction {
    /// The number of directions.
    pub fn num_directions(self) -> usize {
        match self {
            Self::Forward | Self::Backward => 1,
            Self::Both => 2,
        }
    }

    /// Whether direction `dir`, counted from 0, is the backward one.
    pub(crate) fn is_reverse(self, dir: usize) -> bool {
        match self {
            Self::Forward => false,
            Self::Backward => true,
            Self::Both => dir == 1,
        }
    }
}
