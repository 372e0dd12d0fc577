//! How the planes of a cube divide a tile.

use burn::backend::DType;
use burn::backend::cubecl::dtype_to_storage_type;
use cubecl::ir::ElemType;

use crate::flash::cube::layout::{FRAGMENT, PLANE_SIZE};

/// Elements in half precision of a vector of 16 bytes.
pub(super) const VECTOR: usize = 8;

/// Head sizes up to this have enough registers.
const MAX_SIZE: usize = 64;

/// The type of the tensors, and of the operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) enum CooperativeType {
    F16,
    /// `f32`: each element is the sum of three operands in `bf16`.
    F32,
}

impl CooperativeType {
    pub(in crate::flash::cube) fn new(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self::F16),
            DType::F32 => Some(Self::F32),
            _ => None,
        }
    }

    /// The type of the operands.
    pub(in crate::flash::cube) fn operand(self) -> DType {
        match self {
            Self::F16 => DType::F16,
            Self::F32 => DType::BF16,
        }
    }

    /// The number of operands of each element.
    pub(super) fn parts(self) -> usize {
        match self {
            Self::F16 => 1,
            Self::F32 => 3,
        }
    }

    /// Whether elements are split into operands.
    pub(super) fn is_split(self) -> bool {
        self.parts() > 1
    }

    /// Vectors of 16 bytes with eight elements of a tensor.
    pub(super) fn words(self) -> usize {
        match self {
            Self::F16 => 1,
            Self::F32 => 2,
        }
    }

    /// An operand with this exponent is infinite or NaN.
    pub(super) fn max_exponent(self) -> u32 {
        match self {
            Self::F16 => 0x7c00,
            Self::F32 => 0x7f80,
        }
    }
}

/// What the gradients of keys and values need of the softmax of each query.
pub(super) const TERMS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) struct CooperativeLayout {
    pub(super) planes: usize,
    /// Fragments of 16 rows that a plane computes.
    pub(super) fragments: usize,
    /// Columns of a tile.
    pub(super) columns: usize,
    pub(super) d_head: usize,
    pub(super) d_value: usize,
    pub(super) ty: CooperativeType,
}

impl CooperativeLayout {
    /// The layout of the forward pass.
    ///
    /// More rows share the columns that a cube loads. In `f32` rows take three times the registers.
    pub(in crate::flash::cube) fn forward(
        ty: CooperativeType,
        d_head: usize,
        d_value: usize,
    ) -> Self {
        let (planes, columns) = match ty {
            CooperativeType::F16 => (16, 64),
            CooperativeType::F32 => (8, 32),
        };
        Self {
            planes,
            fragments: 1,
            columns,
            d_head,
            d_value,
            ty,
        }
    }

    /// The layout for the gradients of keys and values. It leaves twice the registers for a plane.
    pub(in crate::flash::cube) fn backward_keys(
        ty: CooperativeType,
        d_head: usize,
        d_value: usize,
    ) -> Self {
        Self {
            planes: 8,
            columns: match ty {
                CooperativeType::F16 => 64,
                CooperativeType::F32 => 16,
            },
            ..Self::forward(ty, d_head, d_value)
        }
    }

    /// The layout for the gradient of queries of the same call. It has one accumulator less.
    pub(in crate::flash::cube) fn with_query_gradient(self) -> Self {
        Self {
            fragments: match self.ty {
                CooperativeType::F16 => 2,
                CooperativeType::F32 => 1,
            },
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

    /// Fragments with the reference of each row, with which the accumulators of scores start. In `f32` it is
    /// subtracted afterwards.
    pub(super) fn offsets(self) -> usize {
        if self.ty.is_split() {
            0
        } else {
            self.fragments
        }
    }

    /// Steps of 16 columns of a tile.
    pub(super) fn steps(self) -> usize {
        self.columns / FRAGMENT
    }

    /// The type of the operands.
    pub(in crate::flash::cube) fn operand_elem(self) -> ElemType {
        dtype_to_storage_type(self.ty.operand())
    }

    /// Elements of a tensor in a vector of 16 bytes.
    pub(in crate::flash::cube) fn word(self) -> usize {
        VECTOR / self.ty.words()
    }

    /// Operands of a row.
    pub(super) fn width(self, size: usize) -> usize {
        size * self.ty.parts()
    }

    /// The stride of rows in shared memory, in vectors. It is odd, so that the rows of a fragment are in
    /// different banks.
    pub(super) fn row_stride(self, size: usize) -> usize {
        self.width(size) / VECTOR + 1
    }

    /// The size of the two column operands in shared memory, in vectors.
    pub(super) fn tiles_len(self) -> usize {
        self.columns * (self.row_stride(self.d_head) + self.row_stride(self.d_value))
    }

    /// The offset of the second column operand in the tiles, which has rows of `d_value`.
    pub(super) fn value_offset(self) -> usize {
        self.columns * self.row_stride(self.d_head)
    }

    pub(in crate::flash::cube) fn shared_bytes(self) -> usize {
        let staged = self.planes * (4 + 2) * FRAGMENT * FRAGMENT;
        // Per column: what was removed from both operands, and the terms.
        16 * self.tiles_len() + staged + 4 * (2 + TERMS) * self.columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_within_the_limits_of_a_gpu() {
        let types = [CooperativeType::F16, CooperativeType::F32];
        let sizes = (16..=MAX_SIZE).step_by(16);
        for (ty, size) in types
            .into_iter()
            .flat_map(|ty| sizes.clone().map(move |size| (ty, size)))
        {
            let layouts = [
                CooperativeLayout::forward(ty, size, size),
                CooperativeLayout::backward_keys(ty, size, size),
                CooperativeLayout::backward_keys(ty, size, size).with_query_gradient(),
            ];
            for layout in layouts {
                assert!(layout.supports(), "{layout:?}");
                assert!(layout.shared_bytes() <= 48 << 10, "{layout:?}");
                assert_eq!(layout.row_stride(size) % 2, 1, "{layout:?}");
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
        let ty = CooperativeType::F16;
        assert!(!CooperativeLayout::forward(ty, 24, 64).supports());
        assert!(!CooperativeLayout::forward(ty, 64, 128).supports());
    }
}
