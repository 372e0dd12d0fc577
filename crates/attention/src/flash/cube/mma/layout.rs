//! How the planes of a cube divide a tile.

use burn::backend::DType;
use cubecl::ir::{ElemType, FloatKind};

use crate::flash::cube::layout::PLANE_SIZE;

/// Rows of a fragment.
pub(super) const FRAGMENT: usize = 16;

/// The type of the operands of matrix instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) enum MmaType {
    F16,
    Bf16,
    /// `f32` as the sum of two numbers in TF32.
    Tf32,
}

impl MmaType {
    pub(in crate::flash::cube) fn new(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F16 => Some(Self::F16),
            DType::BF16 => Some(Self::Bf16),
            DType::F32 => Some(Self::Tf32),
            _ => None,
        }
    }

    /// The type of the operands for CubeCL.
    pub(in crate::flash::cube) fn elem(self) -> ElemType {
        ElemType::Float(match self {
            Self::F16 => FloatKind::F16,
            Self::Bf16 => FloatKind::BF16,
            Self::Tf32 => FloatKind::TF32,
        })
    }

    /// Whether each element is the sum of two operands.
    pub(super) fn is_split(self) -> bool {
        match self {
            Self::F16 | Self::Bf16 => false,
            Self::Tf32 => true,
        }
    }

    /// The name in PTX.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Tf32 => "tf32",
        }
    }

    /// The elements that an instruction sums over.
    pub(in crate::flash::cube) fn step(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 16,
            Self::Tf32 => 8,
        }
    }

    /// The largest head size whose operands and sums fit in registers.
    fn max_size(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 128,
            Self::Tf32 => 64,
        }
    }

    /// The elements of a copy of 16 bytes.
    pub(in crate::flash::cube) fn vec(self) -> usize {
        16 / self.bytes()
    }

    fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::Tf32 => 4,
        }
    }

    /// The stride of rows in shared memory. It is an odd number of 16-byte vectors, so that the
    /// eight rows that `ldmatrix` loads at once are in different banks.
    pub(super) fn row_stride(self, size: usize) -> usize {
        size + self.vec()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) struct MmaLayout {
    pub(super) planes: usize,
    /// Fragments of 16 rows that a plane computes.
    pub(super) fragments: usize,
    /// Columns of a tile.
    pub(super) columns: usize,
    pub(super) d_head: usize,
    pub(super) d_value: usize,
    pub(super) ty: MmaType,
}

impl MmaLayout {
    /// The layout of the forward pass.
    ///
    /// With two fragments of rows, a plane uses each element in shared memory twice. Wider heads
    /// leave no registers for it.
    pub(in crate::flash::cube) fn forward(ty: MmaType, d_head: usize, d_value: usize) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        let [fragments, columns] = match ty {
            MmaType::F16 | MmaType::Bf16 if is_narrow => [2, 48],
            MmaType::F16 | MmaType::Bf16 => [1, 64],
            MmaType::Tf32 => [1, 64],
        };
        Self::new(ty, [fragments, columns], [d_head, d_value])
    }

    /// The layout for the gradients of keys and values.
    pub(in crate::flash::cube) fn backward_keys(
        ty: MmaType,
        d_head: usize,
        d_value: usize,
    ) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        let columns = match ty {
            MmaType::F16 | MmaType::Bf16 if is_narrow => 64,
            MmaType::F16 | MmaType::Bf16 => 32,
            MmaType::Tf32 => 32,
        };
        Self::new(ty, [1, columns], [d_head, d_value])
    }

    /// The layout for the gradient of queries of the same call. It has one accumulator less.
    pub(in crate::flash::cube) fn with_query_gradient(self) -> Self {
        let Self {
            ty,
            d_head,
            d_value,
            ..
        } = self;
        let is_narrow = d_head.max(d_value) <= 64;
        let [fragments, columns] = match ty {
            MmaType::F16 | MmaType::Bf16 if is_narrow => [2, 32],
            MmaType::F16 | MmaType::Bf16 => [1, 32],
            MmaType::Tf32 => [1, 32],
        };
        Self::new(ty, [fragments, columns], [d_head, d_value])
    }

    fn new(ty: MmaType, [fragments, columns]: [usize; 2], [d_head, d_value]: [usize; 2]) -> Self {
        Self {
            planes: 4,
            fragments,
            columns,
            d_head,
            d_value,
            ty,
        }
    }

    /// Whether scores are scaled before their maximum is subtracted, as in the other kernels, rather
    /// than both at once.
    pub(super) fn is_exact(self) -> bool {
        self.ty.is_split()
    }

    pub(in crate::flash::cube) fn ty(self) -> MmaType {
        self.ty
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
        [self.d_head, self.d_value].into_iter().all(|size| {
            size.is_multiple_of(FRAGMENT) && (FRAGMENT..=self.ty.max_size()).contains(&size)
        })
    }

    /// Shared memory of two stages of the two column operands, and of values per column.
    pub(in crate::flash::cube) fn shared_bytes(self) -> usize {
        let elements = self.stage_len(self.d_head) + self.stage_len(self.d_value);
        self.ty.bytes() * elements + 36 * self.columns
    }

    /// The elements of two stages of tiles with rows of `size`, or of one row operand.
    pub(super) fn stage_len(self, size: usize) -> usize {
        self.tile_m().max(2 * self.columns) * self.ty.row_stride(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_within_the_limits_of_a_gpu() {
        for ty in [MmaType::F16, MmaType::Bf16, MmaType::Tf32] {
            for size in (16..=ty.max_size()).step_by(16) {
                let layouts = [
                    MmaLayout::forward(ty, size, size),
                    MmaLayout::backward_keys(ty, size, size),
                    MmaLayout::backward_keys(ty, size, size).with_query_gradient(),
                ];
                for layout in layouts {
                    assert!(layout.supports(), "{layout:?}");
                    assert!(layout.shared_bytes() <= 96 << 10, "{layout:?}");
                    assert_eq!(ty.row_stride(size) / ty.vec() % 2, 1, "{layout:?}");
                    // Bitmaps and non-finite elements are per plane and per unit.
                    assert_eq!(32 % layout.plane_rows(), 0, "{layout:?}");
                    assert!(layout.columns <= layout.units(), "{layout:?}");
                }
            }
        }
        assert!(!MmaLayout::forward(MmaType::F16, 24, 64).supports());
        assert!(!MmaLayout::forward(MmaType::F16, 64, 256).supports());
        assert!(!MmaLayout::forward(MmaType::Tf32, 64, 128).supports());
    }
}
