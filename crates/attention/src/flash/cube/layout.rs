//! How the units of a cube divide a tile, and the layout of their shared memory.

use super::cooperative::CooperativeLayout;
use super::mma::MmaLayout;

/// Units of a plane. Cooperative matrices are only used on devices with this plane size.
pub(super) const PLANE_SIZE: usize = 32;

/// Rows and columns of a cooperative matrix fragment.
pub(super) const FRAGMENT: usize = 16;

/// The stride, in vec4, of rows of `vec4s` in shared memory. The padding puts adjacent rows into
/// different banks. Rows of cooperative matrices must be aligned to 16 bytes, which is an even
/// number of vec4; [`Layout::is_valid`] checks it.
pub(super) fn padded_stride(matmul: Matmul, vec4s: usize) -> usize {
    match matmul {
        Matmul::Unit => vec4s + 1,
        Matmul::Cmma => vec4s + 2,
    }
}

/// The layout of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum KernelLayout {
    /// Of the kernels for all GPUs.
    Units(Layout),
    /// Of the [`mma`](super::mma) kernels.
    Mma(MmaLayout),
    /// Of the [cooperative](super::cooperative) kernels.
    Cooperative(CooperativeLayout),
}

impl KernelLayout {
    /// Rows and columns of a tile.
    pub(super) fn tile(self) -> [usize; 2] {
        match self {
            Self::Units(layout) => layout.tile(),
            Self::Mma(layout) => layout.tile(),
            Self::Cooperative(layout) => layout.tile(),
        }
    }
}

/// How matrices are multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Matmul {
    /// By each unit separately, in `f32`.
    Unit,
    /// By the cooperative matrix instructions of a plane, in half precision with `f32`
    /// accumulators.
    Cmma,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) matmul: Matmul,
    /// Units per side of the square cube.
    pub(crate) cube_side: usize,
    /// Rows per unit.
    pub(crate) unit_rows: usize,
    /// Columns per unit, in vec4.
    pub(crate) unit_vec4s: usize,
    /// Columns of the operands in shared memory at a time (block K), in vec4.
    pub(crate) chunk_vec4s: usize,
}

impl Layout {
    pub(super) const fn with_chunk(self, chunk_vec4s: usize) -> Self {
        Self {
            chunk_vec4s,
            ..self
        }
    }

    pub(super) const fn with_cmma(self) -> Self {
        Self {
            matmul: Matmul::Cmma,
            ..self
        }
    }

    pub(crate) fn units(self) -> usize {
        self.cube_side * self.cube_side
    }

    /// Whether every division in the kernels is without remainder.
    pub(super) fn is_valid(self) -> bool {
        let loads = [
            self.unit_rows * self.chunk_vec4s,
            self.unit_columns() * self.chunk_vec4s,
            self.staged_rows() * self.unit_vec4s,
        ];
        [4, 8, 16, 32].contains(&self.cube_side)
            && self.unit_rows > 0
            && self.unit_rows.is_multiple_of(4)
            && loads
                .into_iter()
                .all(|load| load > 0 && load.is_multiple_of(self.cube_side))
            && (self.matmul == Matmul::Unit || self.is_valid_for_cmma())
    }

    /// Whether the fragments of a tile are distributed evenly, those of a plane are in one row, and
    /// the parts of shared memory are aligned.
    fn is_valid_for_cmma(self) -> bool {
        let divides = |by: usize, value: usize| value >= by && value.is_multiple_of(by);
        divides(PLANE_SIZE, self.units())
            && divides(FRAGMENT, self.tile_m())
            && divides(FRAGMENT, self.tile_n())
            && divides(FRAGMENT, self.chunk_vec4s * 4)
            && divides(self.planes(), self.fragments())
            && divides(self.plane_fragments(), self.tile_n() / FRAGMENT)
            && divides(32, 8 * self.half_len())
            && divides(32, 16 * self.full_len())
    }

    fn planes(self) -> usize {
        self.units() / PLANE_SIZE
    }

    fn fragments(self) -> usize {
        self.tile_m() / FRAGMENT * (self.tile_n() / FRAGMENT)
    }

    pub(super) fn plane_fragments(self) -> usize {
        self.fragments() / self.planes()
    }

    /// Rows and columns of a tile.
    pub(super) fn tile(self) -> [usize; 2] {
        [self.tile_m(), self.tile_n()]
    }

    /// Rows of a tile (block M).
    pub(crate) fn tile_m(self) -> usize {
        self.cube_side * self.unit_rows
    }

    /// Columns of a tile (block N).
    pub(crate) fn tile_n(self) -> usize {
        self.cube_side * self.unit_columns()
    }

    pub(super) fn unit_columns(self) -> usize {
        4 * self.unit_vec4s
    }

    pub(super) fn unit_elements(self) -> usize {
        self.unit_rows * self.unit_columns()
    }

    /// The offset of column `j` of a unit from the unit's first column. Vec4s of adjacent units are
    /// interleaved.
    pub(super) fn column_offset(self, j: usize) -> usize {
        j / 4 * 4 * self.cube_side + j % 4
    }

    pub(super) fn chunk_stride(self) -> usize {
        padded_stride(self.matmul, self.chunk_vec4s)
    }

    /// The stride of rows of a tile in half precision.
    pub(super) fn half_stride(self) -> usize {
        padded_stride(Matmul::Cmma, self.tile_n() / 4)
    }

    /// The offset of the right operand in half precision. Before it is a chunk of the left operand
    /// or the weights of a tile.
    pub(super) fn rhs_offset(self) -> usize {
        self.tile_m() * self.chunk_stride().max(self.half_stride())
    }

    /// The size of the half-precision part, in vec4.
    pub(super) fn half_len(self) -> usize {
        match self.matmul {
            Matmul::Unit => 1,
            Matmul::Cmma => {
                self.rhs_offset() + self.tile_n() * self.chunk_stride().max(self.half_stride())
            }
        }
    }

    /// The stride of rows of a tile in `f32`.
    pub(super) fn tile_stride(self) -> usize {
        self.cube_side * self.unit_vec4s + 1
    }

    /// Rows of the right operand that are in shared memory at a time when it is multiplied by
    /// weights.
    pub(super) fn staged_rows(self) -> usize {
        match self.matmul {
            Matmul::Unit => self.tile_n() / 2,
            Matmul::Cmma => self.tile_n(),
        }
    }

    /// The offset of a tile in `f32`. Before it are the `f32` chunks of both operands.
    pub(super) fn tile_offset(self) -> usize {
        let chunks = (self.tile_m() + self.tile_n()) * self.chunk_stride();
        match self.matmul {
            Matmul::Unit => chunks.max(self.staged_rows() * self.cube_side * self.unit_vec4s),
            Matmul::Cmma => 0,
        }
    }

    /// The offset of the values for reductions over the units of a row.
    pub(super) fn reduce_offset(self) -> usize {
        self.tile_offset() + self.tile_m() * self.tile_stride()
    }

    /// The offset of the flag that a matrix has non-finite elements.
    pub(super) fn flag_offset(self) -> usize {
        self.reduce_offset() + self.units() * self.unit_rows.div_ceil(4)
    }

    /// The size of the `f32` part, in vec4.
    pub(super) fn full_len(self) -> usize {
        // Two, so that cooperative matrices are aligned to 32 bytes.
        self.flag_offset() + 2
    }

    pub(crate) fn shared_bytes(self) -> usize {
        let half_bytes = match self.matmul {
            Matmul::Unit => 16 * self.half_len(),
            Matmul::Cmma => 8 * self.half_len(),
        };
        16 * self.full_len() + half_bytes
    }

    /// Blocks of `tile_n` columns in a matrix of this width.
    pub(crate) fn blocks(self, width: usize) -> usize {
        width.div_ceil(self.tile_n())
    }
}
