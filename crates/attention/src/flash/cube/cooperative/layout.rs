//! How the planes of a cube divide a tile.

use crate::flash::cube::layout::{FRAGMENT, PLANE_SIZE};

/// Elements of a vector of 16 bytes.
pub(in crate::flash::cube) const VECTOR: usize = 8;

/// Head sizes up to this have enough registers.
const MAX_SIZE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) struct CooperativeLayout {
    pub(super) planes: usize,
    /// Fragments of 16 rows that a plane computes.
    pub(super) fragments: usize,
    /// Columns of a tile.
    pub(super) columns: usize,
    pub(super) d_head: usize,
    pub(super) d_value: usize,
}

impl CooperativeLayout {
    /// The layout of the forward pass.
    ///
    /// More rows share the columns that a cube loads.
    pub(in crate::flash::cube) fn forward(d_head: usize, d_value: usize) -> Self {
        Self {
            planes: 16,
            fragments: 1,
            columns: 64,
            d_head,
            d_value,
        }
    }

    /// The layout for the gradients of keys and values. It leaves twice the registers for a plane.
    pub(in crate::flash::cube) fn backward_keys(d_head: usize, d_value: usize) -> Self {
        Self {
            planes: 8,
            ..Self::forward(d_head, d_value)
        }
    }

    /// The layout for the gradient of queries of the same call. It has one accumulator less.
    pub(in crate::flash::cube) fn with_query_gradient(self) -> Self {
        Self {
            fragments: 2,
            ..self
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
            .all(|size| size.is_multiple_of(FRAGMENT) && (FRAGMENT..=MAX_SIZE).contains(&size))
    }

    /// Steps of 16 columns of a tile.
    pub(super) fn steps(self) -> usize {
        self.columns / FRAGMENT
    }

    /// The size of the two column operands in shared memory, in vectors.
    pub(super) fn tiles_len(self) -> usize {
        self.columns * (row_stride(self.d_head) + row_stride(self.d_value))
    }

    /// The offset of the second column operand in the tiles, which has rows of `d_value`.
    pub(super) fn value_offset(self) -> usize {
        self.columns * row_stride(self.d_head)
    }

    pub(in crate::flash::cube) fn shared_bytes(self) -> usize {
        let staged = self.planes * (4 + 2) * FRAGMENT * FRAGMENT;
        // Per column: what was removed from both operands, and two terms.
        16 * self.tiles_len() + staged + 16 * self.columns
    }
}

/// The stride of rows in shared memory, in vectors. It is odd, so that the rows of a fragment are in
/// different banks.
pub(super) fn row_stride(size: usize) -> usize {
    size / VECTOR + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_within_the_limits_of_a_gpu() {
        for size in (16..=MAX_SIZE).step_by(16) {
            let layouts = [
                CooperativeLayout::forward(size, size),
                CooperativeLayout::backward_keys(size, size),
                CooperativeLayout::backward_keys(size, size).with_query_gradient(),
            ];
            for layout in layouts {
                assert!(layout.supports(), "{layout:?}");
                assert!(layout.shared_bytes() <= 48 << 10, "{layout:?}");
                assert_eq!(row_stride(size) % 2, 1, "{layout:?}");
                // Statistics and removed elements are per unit.
                assert!(layout.columns <= layout.units(), "{layout:?}");
                assert!(layout.columns.is_multiple_of(FRAGMENT), "{layout:?}");
                // The rows of a cube are loaded in parts.
                assert!(
                    layout.columns.is_multiple_of(layout.plane_rows()),
                    "{layout:?}"
                );
                assert!(layout.tile_m().is_multiple_of(layout.columns), "{layout:?}");
            }
        }
        assert!(!CooperativeLayout::forward(24, 64).supports());
        assert!(!CooperativeLayout::forward(64, 128).supports());
    }
}
