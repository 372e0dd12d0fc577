//! Tile coverage, and the position arithmetic that rules share.

use std::ops::Range;

/// How much of a tile is visible: FlexAttention's masked, partial and full blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// No query attends to any key.
    Masked,
    /// Some queries may attend to some keys.
    Partial,
    /// Every query attends to every key.
    Full,
}

impl Coverage {
    pub(super) fn new(is_masked: bool, is_full: bool) -> Self {
        match (is_masked, is_full) {
            (true, _) => Self::Masked,
            (_, true) => Self::Full,
            _ => Self::Partial,
        }
    }
}

/// The non-negative positions from `first` to `last`, both included.
pub(super) fn as_keys(first: i64, last: i64) -> Range<usize> {
    first.max(0) as usize..(last + 1).max(0) as usize
}

/// A bit mask with all bits from `index` on.
pub(super) fn bits_from(index: i64) -> u64 {
    match index {
        ..=0 => u64::MAX,
        1..=63 => u64::MAX << index,
        _ => 0,
    }
}
