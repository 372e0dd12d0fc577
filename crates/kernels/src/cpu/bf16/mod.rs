//! Matmuls of small bf16 matrices with sums in `f32`, on operands that are packed into tiles.
//!
//! AMX multiplies a tile of 16 x 32 elements by one of 32 x 16. A *left* operand is stored in tiles
//! of 16 rows of 32 elements. A *right* operand is stored in tiles of 16 pairs of rows: the two
//! elements of a column are adjacent, and a row of the tile has the pairs of 16 columns. All
//! dimensions are padded with zeros to a multiple of 32, so that four tiles of the output are
//! computed at a time. [`pack`] has the functions that pack operands.
//!
//! AVX-512 BF16 takes the same operands. On the Xeon on which it was measured its dot products have
//! half the throughput of `f32` multiply-adds, so [`Bf16Set::detect`] does not select it: without
//! AMX, computing in `f32` is faster.

mod amx;
mod avx512;
pub mod pack;
#[cfg(test)]
mod tests;

use burn::tensor::bf16;

pub use self::amx::Amx;
pub use self::avx512::Avx512Bf16;

/// Elements of a tile: 16 rows of 64 bytes.
pub const TILE: usize = 512;

/// All dimensions of operands are padded to a multiple of this.
pub const BLOCK: usize = 32;

/// An instruction set with products of bf16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bf16Set {
    /// AMX tiles, with vectors of AVX-512 BF16.
    Amx,
    /// AVX-512 BF16.
    Avx512,
}

impl Bf16Set {
    /// The set that multiplies bf16 faster than `f32`, if this CPU has one and the operating system
    /// permits its use.
    pub fn detect() -> Option<Self> {
        (has_avx512_bf16() && amx::is_available()).then_some(Self::Amx)
    }

    /// All sets of this CPU, for tests that compare them.
    #[doc(hidden)]
    pub fn available() -> Vec<Self> {
        let avx512 = has_avx512_bf16().then_some(Self::Avx512);
        Self::detect().into_iter().chain(avx512).collect()
    }
}

/// The features of every CPU with AMX that the kernels use in addition to AMX.
fn has_avx512_bf16() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bf16")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
}

/// An operand: tile `(i, step)`, the rows or columns from `16 i` on and 32 inner elements, is at
/// `start + i · block + step · inner` (in elements).
#[derive(Clone, Copy)]
pub struct Tiles {
    /// The first tile.
    pub start: *const bf16,
    /// Distances of tiles.
    pub layout: Layout,
}

/// Distances of tiles in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// To the next 16 rows (left operand) or columns (right operand).
    pub block: usize,
    /// To the next 32 elements of the inner dimension.
    pub step: usize,
}

impl Layout {
    /// Tiles of the inner dimension are adjacent, for an inner dimension of this length.
    pub const fn inner_first(inner: usize) -> Self {
        Self {
            block: inner.div_ceil(BLOCK) * TILE,
            step: TILE,
        }
    }

    /// Tiles of the outer dimension are adjacent, for this number of rows or columns.
    pub const fn outer_first(count: usize) -> Self {
        Self {
            block: TILE,
            step: count.div_ceil(BLOCK) * 2 * TILE,
        }
    }

    /// The tiles of an operand in this layout.
    #[inline(always)]
    pub const fn tiles(self, start: *const bf16) -> Tiles {
        Tiles {
            start,
            layout: self,
        }
    }
}

/// Products of packed operands.
///
/// # Safety
///
/// The methods must be called on a CPU with the instruction set, in functions that enable AVX-512 F,
/// BW, DQ, VL and BF16.
#[allow(clippy::missing_safety_doc)] // documented on the trait
pub trait Bf16Product: Copy {
    /// Prepares this thread for products; [`TileState`] calls it.
    unsafe fn configure();

    /// Ends what [`configure`](Self::configure) began.
    unsafe fn release();

    /// `c = a · b`, or `c += a · b` if `ADD`, with `a: [rows, inner]`, `b: [inner, columns]` and
    /// `c: [rows, columns]` with rows of `c_stride` elements.
    ///
    /// Also requires that all dimensions are multiples of [`BLOCK`], that `a` and `b` can be read and
    /// `c` can be written in these sizes, and that this thread has a [`TileState`].
    unsafe fn product<const ADD: bool>(
        size: [usize; 3],
        a: Tiles,
        b: Tiles,
        c: *mut f32,
        c_stride: usize,
    );
}

/// While it exists, this thread can compute products.
pub struct TileState<P: Bf16Product>(std::marker::PhantomData<P>);

impl<P: Bf16Product> TileState<P> {
    /// Prepares this thread.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set. The value is dropped by the same thread, and no other exists
    /// on it.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        // SAFETY: as promised by the caller.
        unsafe { P::configure() };
        Self(std::marker::PhantomData)
    }
}

impl<P: Bf16Product> Drop for TileState<P> {
    fn drop(&mut self) {
        // SAFETY: `new` was called on this thread.
        unsafe { P::release() };
    }
}

/// Uninitialised memory for packed operands, aligned to cache lines.
pub type PackedMemory = Box<[std::mem::MaybeUninit<Line>]>;

/// 32 elements in a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Line([bf16; BLOCK]);

/// Lines of a tile.
pub const TILE_LINES: usize = TILE / BLOCK;

/// Memory for this number of tiles.
pub fn packed_memory(tiles: usize) -> PackedMemory {
    Box::new_uninit_slice(tiles * TILE_LINES)
}

/// This number of zeros.
pub fn zeros(count: usize) -> Vec<bf16> {
    // The allocator provides zeros for integers without writing them.
    let mut bits = std::mem::ManuallyDrop::new(vec![0_u16; count]);
    let (start, len, capacity) = (bits.as_mut_ptr(), bits.len(), bits.capacity());
    // SAFETY: a vector of the same allocation, which is not dropped twice; bf16 is a `u16` in memory.
    unsafe { Vec::from_raw_parts(start.cast(), len, capacity) }
}
