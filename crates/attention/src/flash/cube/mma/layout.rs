//! How the planes of a cube divide a tile.

use burn::backend::DType;
use cubecl::ir::{ElemType, FloatKind};

use crate::flash::cube::layout::PLANE_SIZE;

/// Rows of a fragment.
pub(super) const FRAGMENT: usize = 16;

/// The instructions that multiply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::flash::cube) enum Instructions {
    /// `mma.sync`: a plane multiplies fragments in registers.
    Mma,
    /// `wgmma` of compute capability 9.0: four planes multiply their rows by a tile in shared memory.
    Wgmma,
}

/// Elements of a row that are adjacent in shared memory for `wgmma`: 128 bytes.
const PANEL: usize = 64;

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
    pub(in crate::flash::cube) fn is_split(self) -> bool {
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
    pub(super) instructions: Instructions,
}

impl MmaLayout {
    /// The layout of the forward pass.
    ///
    /// With two fragments of rows, a plane uses each element in shared memory twice. Wider heads
    /// leave no registers for it.
    pub(in crate::flash::cube) fn forward(
        instructions: Instructions,
        ty: MmaType,
        d_head: usize,
        d_value: usize,
    ) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        let sizes = match (instructions, ty) {
            // Three cubes per multiprocessor, limited by registers.
            (Instructions::Wgmma, _) if is_narrow => [4, 1, 128],
            (Instructions::Wgmma, _) => [4, 1, 64],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16) if is_narrow => [4, 2, 48],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16 | MmaType::Tf32) => [4, 1, 64],
        };
        Self::new(instructions, ty, sizes, [d_head, d_value])
    }

    /// The layout for the gradients of keys and values.
    pub(in crate::flash::cube) fn backward_keys(
        instructions: Instructions,
        ty: MmaType,
        d_head: usize,
        d_value: usize,
    ) -> Self {
        let is_narrow = d_head.max(d_value) <= 64;
        let sizes = match (instructions, ty) {
            (Instructions::Wgmma, _) => [4, 1, 64],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16) if is_narrow => [4, 1, 64],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16 | MmaType::Tf32) => [4, 1, 32],
        };
        Self::new(instructions, ty, sizes, [d_head, d_value])
    }

    /// The layout for the gradient of queries of the same call. It has one accumulator less.
    pub(in crate::flash::cube) fn with_query_gradient(self) -> Self {
        let Self {
            instructions,
            ty,
            d_head,
            d_value,
            ..
        } = self;
        let is_narrow = d_head.max(d_value) <= 64;
        let sizes = match (instructions, ty) {
            (Instructions::Wgmma, _) => [4, 1, 64],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16) if is_narrow => [4, 2, 32],
            (Instructions::Mma, MmaType::F16 | MmaType::Bf16 | MmaType::Tf32) => [4, 1, 32],
        };
        Self::new(instructions, ty, sizes, [d_head, d_value])
    }

    fn new(
        instructions: Instructions,
        ty: MmaType,
        [planes, fragments, columns]: [usize; 3],
        [d_head, d_value]: [usize; 2],
    ) -> Self {
        Self {
            planes,
            fragments,
            columns,
            d_head,
            d_value,
            ty,
            instructions,
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

    /// Whether head sizes are supported: whole fragments or panels, and not too many registers.
    pub(in crate::flash::cube) fn supports(self) -> bool {
        let unit = match self.instructions {
            Instructions::Mma => FRAGMENT,
            Instructions::Wgmma => PANEL,
        };
        [self.d_head, self.d_value]
            .into_iter()
            .all(|size| size.is_multiple_of(unit) && (unit..=self.ty.max_size()).contains(&size))
    }

    /// Shared memory of two stages of the two column operands, of the row operands if they stay there,
    /// and of values per column.
    pub(in crate::flash::cube) fn shared_bytes(self) -> usize {
        let rows = self.shared_rows() + self.left_rows();
        let elements = rows * (self.row_stride(self.d_head) + self.row_stride(self.d_value));
        self.ty.bytes() * elements + 36 * self.columns
    }

    /// Rows of a column operand in shared memory: two stages. With `mma`, the row operands are there
    /// before, on their way to registers.
    pub(super) fn shared_rows(self) -> usize {
        match self.instructions {
            Instructions::Mma => self.tile_m().max(2 * self.columns),
            Instructions::Wgmma => 2 * self.columns,
        }
    }

    /// Rows of a row operand that stay in shared memory.
    pub(super) fn left_rows(self) -> usize {
        match self.instructions {
            Instructions::Mma => 0,
            Instructions::Wgmma => self.tile_m(),
        }
    }

    /// The stride of rows in shared memory.
    pub(super) fn row_stride(self, size: usize) -> usize {
        match self.instructions {
            // An odd number of 16-byte vectors, so that the eight rows that `ldmatrix` loads at once
            // are in different banks.
            Instructions::Mma => size + self.ty.vec(),
            Instructions::Wgmma => size,
        }
    }

    /// The alignment of rows in shared memory in bytes: that of copies, or of eight rows of a panel.
    pub(super) fn alignment(self) -> usize {
        match self.instructions {
            Instructions::Mma => 16,
            Instructions::Wgmma => 8 * self.panel_row_bytes(),
        }
    }

    /// The bytes of a row of a panel.
    pub(super) fn panel_row_bytes(self) -> usize {
        PANEL * self.ty.bytes()
    }

    /// The vectors of 16 bytes in a row of a panel.
    pub(super) fn panel_vecs(self) -> usize {
        PANEL / self.ty.vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_within_the_limits_of_a_gpu() {
        let kinds = [
            (Instructions::Mma, MmaType::F16, 16),
            (Instructions::Mma, MmaType::Bf16, 16),
            (Instructions::Mma, MmaType::Tf32, 16),
            (Instructions::Wgmma, MmaType::F16, 64),
            (Instructions::Wgmma, MmaType::Bf16, 64),
        ];
        for (instructions, ty, step) in kinds {
            for size in (step..=ty.max_size()).step_by(step) {
                let keys = MmaLayout::backward_keys(instructions, ty, size, size);
                let layouts = [
                    MmaLayout::forward(instructions, ty, size, size),
                    keys,
                    keys.with_query_gradient(),
                ];
                for layout in layouts {
                    assert!(layout.supports(), "{layout:?}");
                    // Two cubes of a multiprocessor with 227 KiB, or one with 99.
                    let limit = match instructions {
                        Instructions::Mma => 96 << 10,
                        Instructions::Wgmma => 113 << 10,
                    };
                    assert!(layout.shared_bytes() <= limit, "{layout:?}");
                    // Bitmaps and non-finite elements are per plane and per unit.
                    assert_eq!(32 % layout.plane_rows(), 0, "{layout:?}");
                    assert!(layout.columns <= layout.units(), "{layout:?}");
                    match instructions {
                        Instructions::Mma => {
                            assert_eq!(layout.row_stride(size) / ty.vec() % 2, 1, "{layout:?}");
                        }
                        Instructions::Wgmma => {
                            assert_eq!(layout.planes % 4, 0, "{layout:?}");
                            assert_eq!(layout.fragments, 1, "{layout:?}");
                            assert!([64, 128].contains(&layout.columns), "{layout:?}");
                        }
                    }
                }
            }
        }
        let mma = |ty, d_head, d_value| MmaLayout::forward(Instructions::Mma, ty, d_head, d_value);
        assert!(!mma(MmaType::F16, 24, 64).supports());
        assert!(!mma(MmaType::F16, 64, 256).supports());
        assert!(!mma(MmaType::Tf32, 64, 128).supports());
        assert!(!MmaLayout::forward(Instructions::Wgmma, MmaType::F16, 96, 64).supports());
    }
}
