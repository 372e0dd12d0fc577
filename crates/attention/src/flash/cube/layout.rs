//! How the units of a cube share a tile, and what lies where in their shared memory.

/// Units of a plane whose instructions multiply matrices. Others have other numbers of them, and
/// are not asked to.
pub(super) const PLANE: usize = 32;

/// Rows and columns of a matrix that one instruction takes.
pub(super) const MATRIX: usize = 16;

/// How far apart rows of so many fours lie, so that rows next to each other are in different
/// banks. Matrix instructions want every row to begin at a multiple of 16 bytes: of an even
/// number of fours, which [`Layout::is_even`] sees to.
fn apart(by: By, fours: usize) -> usize {
    match by {
        By::Units => fours + 1,
        By::Matrices => fours + 2,
    }
}

/// What multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum By {
    /// Each unit its numbers, one by one, in `f32`.
    Units,
    /// The matrix instructions of a plane: what is multiplied is in half precision, and what
    /// it adds up to in `f32`.
    Matrices,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) by: By,
    /// Units of a cube, down and across.
    pub(crate) side: usize,
    /// Rows of a unit.
    pub(crate) rows: usize,
    /// Columns of a unit, in fours.
    pub(crate) fours: usize,
    /// How much of a row is in shared memory at a time, in fours.
    pub(crate) chunk: usize,
}

impl Layout {
    /// The same with matrix instructions.
    pub(super) const fn by_matrices(self) -> Self {
        Self {
            by: By::Matrices,
            ..self
        }
    }

    pub(crate) fn units(self) -> usize {
        self.side * self.side
    }

    /// Whether all that the kernels divide comes out even.
    pub(super) fn is_even(self) -> bool {
        let shares = [
            self.rows * self.chunk,
            self.columns() * self.chunk,
            self.through() * self.fours,
        ];
        [4, 8, 16, 32].contains(&self.side)
            && self.rows > 0
            && self.rows.is_multiple_of(4)
            && shares
                .into_iter()
                .all(|share| share > 0 && share.is_multiple_of(self.side))
            && (self.by == By::Units || self.is_even_in_matrices())
    }

    /// Whether the planes of a cube have as many matrices of a tile each, and each plane its
    /// own side by side; and whether what lies behind others in shared memory begins where
    /// matrices may.
    fn is_even_in_matrices(self) -> bool {
        let is_even = |number: usize, by: usize| number >= by && number.is_multiple_of(by);
        is_even(self.units(), PLANE)
            && is_even(self.down(), MATRIX)
            && is_even(self.across(), MATRIX)
            && is_even(self.chunk * 4, MATRIX)
            && is_even(self.all_matrices(), self.planes())
            && is_even(self.across() / MATRIX, self.matrices())
            && is_even(8 * self.halves(), 32)
            && is_even(16 * self.shared(), 32)
    }

    fn planes(self) -> usize {
        self.units() / PLANE
    }

    fn all_matrices(self) -> usize {
        self.down() / MATRIX * (self.across() / MATRIX)
    }

    /// Matrices of a tile that a plane has.
    pub(super) fn matrices(self) -> usize {
        self.all_matrices() / self.planes()
    }

    /// Rows of a tile.
    pub(crate) fn down(self) -> usize {
        self.side * self.rows
    }

    /// Columns of a tile.
    pub(crate) fn across(self) -> usize {
        self.side * self.columns()
    }

    /// Columns of a unit.
    pub(super) fn columns(self) -> usize {
        4 * self.fours
    }

    /// Numbers that a unit has of a tile.
    pub(super) fn own(self) -> usize {
        self.rows * self.columns()
    }

    /// How far the `j`-th column of a unit lies from where its first four would begin if
    /// units had no others.
    pub(super) fn column(self, j: usize) -> usize {
        j / 4 * 4 * self.side + j % 4
    }

    /// How far [apart] rows of a chunk lie.
    pub(super) fn chunk_stride(self) -> usize {
        apart(self.by, self.chunk)
    }

    /// How far apart rows of a tile lie in half precision.
    pub(super) fn half_stride(self) -> usize {
        apart(By::Matrices, self.across() / 4)
    }

    /// Where the second of what is multiplied begins among the numbers in half precision;
    /// before it lie a chunk of the first, or the weights of a tile.
    pub(super) fn second_at(self) -> usize {
        self.down() * self.chunk_stride().max(self.half_stride())
    }

    /// All numbers in half precision, in fours.
    pub(super) fn halves(self) -> usize {
        match self.by {
            By::Units => 1,
            By::Matrices => {
                self.second_at() + self.across() * self.chunk_stride().max(self.half_stride())
            }
        }
    }

    /// How far apart rows of a tile lie in `f32`.
    pub(super) fn weight_stride(self) -> usize {
        self.side * self.fours + 1
    }

    /// Rows of the matrix that weights are multiplied with that are there at a time.
    pub(super) fn through(self) -> usize {
        match self.by {
            By::Units => self.across() / 2,
            By::Matrices => self.across(),
        }
    }

    /// The part of shared memory that chunks of two matrices are brought into, in `f32`.
    fn chunks(self) -> usize {
        let two = (self.down() + self.across()) * self.chunk_stride();
        match self.by {
            By::Units => two.max(self.through() * self.side * self.fours),
            By::Matrices => 0,
        }
    }

    /// Where the weights of a tile begin.
    pub(super) fn weights_at(self) -> usize {
        self.chunks()
    }

    /// Where each unit's word to the others of its row begins.
    pub(super) fn words_at(self) -> usize {
        self.weights_at() + self.down() * self.weight_stride()
    }

    /// Where it is noted that a matrix has elements that are not finite.
    pub(super) fn flag_at(self) -> usize {
        self.words_at() + self.units() * self.rows.div_ceil(4)
    }

    /// All that is in `f32`, in fours.
    pub(super) fn shared(self) -> usize {
        // Two, so that matrices begin at multiples of 32 bytes.
        self.flag_at() + 2
    }

    pub(crate) fn shared_bytes(self) -> usize {
        let halves = match self.by {
            By::Units => 16 * self.halves(),
            By::Matrices => 8 * self.halves(),
        };
        16 * self.shared() + halves
    }

    /// Blocks of columns, as wide as a tile, in a matrix of this width.
    pub(crate) fn blocks(self, width: usize) -> usize {
        width.div_ceil(self.across())
    }
}
