//! How the planes of a cube divide a tile.

use crate::flash::cube::layout::PLANE_SIZE;

/// Elements of a 16-byte load.
pub(in crate::flash::cube) const VEC8: usize = 8;

/// Rows of a fragment, and columns of a step of a matmul.
pub(super) const FRAGMENT: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) struct MmaLayout {
    pub(super) planes: usize,
    /// Fragments of 16 rows that a plane computes.
    pub(super) fragments: usize,
    /// Columns of a tile.
    pub(super) columns: usize,
    pub(super) d_head: usize,
    pub(super) d_value: usize,
}

impl MmaLayout {
    /// The layout of the forward pass.
    ///
    /// With two fragments of rows, a plane uses each element in shared memory twice. Wider heads
    /// leave no registers for it.
    pub(in crate::flash::cube) fn forward(d_head: usize, d_value: usize) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        Self {
            planes: 4,
            fragments: if is_narrow { 2 } else { 1 },
            columns: 64,
            d_head,
            d_value,
        }
    }

    /// The layout of the backward pass, which has two tiles of scores.
    pub(in crate::flash::cube) fn backward(d_head: usize, d_value: usize) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        Self {
            planes: 4,
            fragments: 1,
            columns: if is_narrow { 64 } else { 32 },
            d_head,
            d_value,
        }
    }

    pub(in crate::flash::cube) fn units(self) -> usize {
        self.planes * PLANE_SIZE
    }

    /// Rows and columns of a tile.
    pub(in crate::flash::cube) fn tile(self) -> [usize; 2] {
        [self.tile_m(), self.columns]
    }

    pub(super) fn tile_m(self) -> usize {
        self.planes * self.plane_rows()
    }

    pub(super) fn plane_rows(self) -> usize {
        self.fragments * FRAGMENT
    }

    /// Whether head sizes are supported: whole fragments, and not too many registers.
    pub(in crate::flash::cube) fn supports(self) -> bool {
        [self.d_head, self.d_value]
            .into_iter()
            .all(|size| size.is_multiple_of(FRAGMENT) && (16..=128).contains(&size))
    }

    /// Shared memory of two stages of the two column operands, and of values per column.
    pub(in crate::flash::cube) fn shared_bytes(self) -> usize {
        let vec8s = self.stage_len(self.d_head) + self.stage_len(self.d_value);
        16 * vec8s + 16 * self.columns
    }

    /// The length, in vec8, of two stages of tiles with rows of `size`, or of one row operand.
    pub(super) fn stage_len(self, size: usize) -> usize {
        self.tile_m().max(2 * self.columns) * row_stride(size)
    }
}

/// The stride, in vec8, of rows in shared memory. It is odd, so that the eight rows that `ldmatrix`
/// loads at once are in different banks.
pub(super) fn row_stride(size: usize) -> usize {
    size / VEC8 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_within_the_limits_of_a_gpu() {
        for size in (16..=128).step_by(16) {
            for layout in [
                MmaLayout::forward(size, size),
                MmaLayout::backward(size, size),
            ] {
                assert!(layout.supports(), "{layout:?}");
                assert!(layout.shared_bytes() <= 96 << 10, "{layout:?}");
                assert_eq!(row_stride(size) % 2, 1);
                // Bitmaps and non-finite elements are per plane and per unit.
                assert_eq!(32 % layout.plane_rows(), 0, "{layout:?}");
                assert!(layout.columns <= layout.units(), "{layout:?}");
            }
        }
        assert!(!MmaLayout::forward(24, 64).supports());
        assert!(!MmaLayout::forward(64, 256).supports());
    }
}
