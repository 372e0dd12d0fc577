//! How much of a tile a rule shows, and the arithmetic of positions that rules share.

use std::ops::Range;

/// How much of a tile is visible: what FlexAttention calls masked, partial and full blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// No query attends to any of its keys.
    Masked,
    /// Some queries may attend to some keys.
    Partial,
    /// Every query attends to every key.
    Full,
}

impl Coverage {
    pub(super) fn by(is_masked: bool, is_full: bool) -> Self {
        match (is_masked, is_full) {
            (true, _) => Self::Masked,
            (_, true) => Self::Full,
            _ => Self::Partial,
        }
    }
}

/// The positions from `first` to `last` that are keys.
pub(super) fn as_keys(first: i64, last: i64) -> Range<usize> {
    first.max(0) as usize..(last + 1).max(0) as usize
}

/// All bits from `place` on.
pub(super) fn bits_from(place: i64) -> u64 {
    match place {
        ..=0 => u64::MAX,
        1..=63 => u64::MAX << place,
        _ => 0,
    }
}
