//! How the units of a cube share a tile, and what lies where in their shared memory.

/// How a cube is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
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

    /// How far apart rows of a chunk lie: one more than there is, so that rows next to
    /// each other are in different banks.
    pub(super) fn chunk_stride(self) -> usize {
        self.chunk + 1
    }

    /// Likewise for the weights of a tile.
    pub(super) fn weight_stride(self) -> usize {
        self.side * self.fours + 1
    }

    /// Rows of the matrix that weights are multiplied with that are there at a time.
    pub(super) fn through(self) -> usize {
        self.across() / 2
    }

    /// The part of shared memory that chunks of two matrices are brought into.
    fn chunks(self) -> usize {
        let two = (self.down() + self.across()) * self.chunk_stride();
        two.max(self.through() * self.side * self.fours)
    }

    /// Where the weights of a tile begin.
    pub(super) fn weights_at(self) -> usize {
        self.chunks()
    }

    /// Where each unit's word to the others of its row begins.
    pub(super) fn words_at(self) -> usize {
        self.weights_at() + self.down() * self.weight_stride()
    }

    /// All of it, in fours.
    pub(super) fn shared(self) -> usize {
        self.words_at() + self.units() * self.rows.div_ceil(4)
    }

    pub(crate) fn shared_bytes(self) -> usize {
        16 * self.shared()
    }

    /// Blocks of columns, as wide as a tile, in a matrix of this width.
    pub(crate) fn blocks(self, width: usize) -> usize {
        width.div_ceil(self.across())
    }
}
