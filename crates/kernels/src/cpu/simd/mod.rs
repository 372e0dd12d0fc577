//! Vector operations for each instruction set.
//!
//! Kernels are written once, over [`Simd`], and [`dispatch!`](crate::dispatch) compiles them for
//! each set in a function with its instructions enabled. Everything here is therefore
//! `#[inline(always)]`.

// Methods have the safety contract of the trait.
#![allow(clippy::undocumented_unsafe_blocks)]

/// Methods of a single expression.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) -> $result:ty = $value:expr;)*) => {$(
        #[inline(always)]
        #[allow(unused_unsafe)] // for methods that could be safe
        unsafe fn $name($($arg: $kind),*) -> $result {
            unsafe { $value }
        }
    )*};
}

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

use burn::tensor::bf16;

pub use self::portable::Portable;
#[cfg(target_arch = "x86_64")]
pub(crate) use self::x86::transpose_16;
#[cfg(target_arch = "x86_64")]
pub use self::x86::{Avx2, Avx512};

/// Vectors of `f32`.
///
/// # Safety
///
/// Every method must be called where the instructions of the set are enabled. Pointers must be
/// valid for the elements read or written; they need not be aligned.
#[allow(clippy::missing_safety_doc)] // documented on the trait
pub trait Simd: Copy {
    /// A vector register.
    type Vector: Copy;
    /// Elements per vector.
    const LANES: usize;
    /// Vectors per row of a matmul's register tile.
    const TILE_VECTORS: usize;

    /// `x` in all lanes.
    unsafe fn splat(x: f32) -> Self::Vector;
    /// `LANES` elements from memory.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// `LANES` elements to memory.
    unsafe fn store(to: *mut f32, x: Self::Vector);
    /// `LANES` elements from memory, widened.
    unsafe fn load_bf16(from: *const bf16) -> Self::Vector;
    /// Twice as many: the elements of even index, and those of odd index. Cheaper than two vectors in
    /// order.
    unsafe fn load_bf16_pair(from: *const bf16) -> [Self::Vector; 2];
    /// The first `count <= LANES` elements from memory, and zeros.
    unsafe fn load_partial(from: *const f32, count: usize) -> Self::Vector;
    /// The first `count` elements to memory.
    unsafe fn store_partial(to: *mut f32, x: Self::Vector, count: usize);
    /// `a + b`
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a - b`
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b`
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a / b`
    unsafe fn div(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`, fused if the processor supports it.
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// The larger of both; `b` where either is NaN.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of both; `b` where either is NaN.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `1 / x`, accurate to two ulps.
    unsafe fn recip(x: Self::Vector) -> Self::Vector;
    /// A bit for each lane, set where `a > b`.
    unsafe fn gt(a: Self::Vector, b: Self::Vector) -> u64;
    /// `a` in lanes whose bit is set, else `b`.
    unsafe fn select(bits: u64, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Rounds to the nearest integer.
    unsafe fn round(x: Self::Vector) -> Self::Vector;
    /// `2^x` of an integer `x` from -126 to 127; unspecified for NaN.
    unsafe fn exp2_integer(x: Self::Vector) -> Self::Vector;
    /// `2^x`, with a relative error up to 1.5e-7; zero below 2^-126, and NaN for NaN.
    unsafe fn exp2(x: Self::Vector) -> Self::Vector;
    /// The sums of the elements of `LANES` rows of `LANES` elements.
    unsafe fn row_sums(rows: *const f32) -> Self::Vector {
        let mut columns = [0.0; MAX_LANES * MAX_LANES];
        // SAFETY: the array is as large as the rows, and the caller enabled the instructions.
        unsafe {
            Self::transpose(rows, Self::LANES, columns.as_mut_ptr(), Self::LANES);
            let mut sums = [Self::splat(0.0); 4];
            for column in (0..Self::LANES).step_by(4) {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let column = columns.as_ptr().add((column + i) * Self::LANES);
                    *sum = Self::add(*sum, Self::load(column));
                }
            }
            Self::add(Self::add(sums[0], sums[1]), Self::add(sums[2], sums[3]))
        }
    }
    /// Transposes a block of `LANES` by `LANES` elements. The strides are those of rows.
    /// The blocks do not overlap.
    unsafe fn transpose(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
        for i in 0..Self::LANES {
            for x in 0..Self::LANES {
                // SAFETY: within the blocks promised by the caller.
                unsafe { *into.add(x * into_stride + i) = *from.add(i * from_stride + x) };
            }
        }
    }
}

/// The lanes of the widest vector.
const MAX_LANES: usize = 16;

/// A type of elements that kernels compute with in `f32`.
pub trait Float: Copy {
    /// The element as `f32`, exactly.
    fn to_f32(self) -> f32;

    /// `S::LANES` elements from memory.
    ///
    /// # Safety
    ///
    /// The instructions of `S` are enabled, and the elements can be read.
    unsafe fn load<S: Simd>(from: *const Self) -> S::Vector;

    /// `2 · S::LANES` elements from memory, in the order of [`pair_index`](Self::pair_index).
    ///
    /// # Safety
    ///
    /// As for [`load`](Self::load).
    unsafe fn load_pair<S: Simd>(from: *const Self) -> [S::Vector; 2];

    /// The index in memory of an element of a pair of vectors with this number of lanes.
    fn pair_index(lanes: usize, vector: usize, lane: usize) -> usize;
}

impl Float for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> S::Vector {
        unsafe { S::load(from) }
    }

    #[inline(always)]
    unsafe fn load_pair<S: Simd>(from: *const Self) -> [S::Vector; 2] {
        unsafe { [S::load(from), S::load(from.add(S::LANES))] }
    }

    #[inline(always)]
    fn pair_index(lanes: usize, vector: usize, lane: usize) -> usize {
        vector * lanes + lane
    }
}

impl Float for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(from: *const Self) -> S::Vector {
        unsafe { S::load_bf16(from) }
    }

    #[inline(always)]
    unsafe fn load_pair<S: Simd>(from: *const Self) -> [S::Vector; 2] {
        unsafe { S::load_bf16_pair(from) }
    }

    #[inline(always)]
    fn pair_index(_lanes: usize, vector: usize, lane: usize) -> usize {
        2 * lane + vector
    }
}

/// The smallest exponent of a normal `f32`; `2^x` is zero below.
const MIN_EXPONENT: f32 = -126.0;

/// Minimax polynomial of `2^f` for `f` in `[-1/2, 1/2]`, highest power first, with a constant term
/// of 1 so that `2^0` is exact. Its relative error is 2e-9, below rounding. All coefficients but
/// the last are those of `(2^f - 1) / f`.
const POLYNOMIAL: [f32; 7] = [
    1.535_326e-4,
    1.339_886_6e-3,
    9.618_438e-3,
    5.550_332_4e-2,
    2.402_264_8e-1,
    6.931_472e-1,
    1.0,
];

/// For larger absolute values, sigmoid and tanh are 0, 1 or -1 to within 1e-18.
const SATURATION: f32 = 60.0;

/// `2^x - 1`, accurate near zero too. `x` is clamped to `±SATURATION`; NaN stays NaN.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn exp2_m1<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let x = S::min(S::splat(SATURATION), S::max(S::splat(-SATURATION), x));
        let whole = S::round(x);
        let rest = S::sub(x, whole);
        let mut power = S::splat(POLYNOMIAL[0]);
        for coefficient in &POLYNOMIAL[1..6] {
            power = S::fma(power, rest, S::splat(*coefficient));
        }
        let scale = S::exp2_integer(whole);
        // 2^whole · (2^rest - 1) + (2^whole - 1)
        S::fma(scale, S::mul(power, rest), S::sub(scale, S::splat(1.0)))
    }
}

/// `1 / (1 + e^-x)`.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub unsafe fn sigmoid<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let power = exp2_m1::<S>(S::mul(x, S::splat(-std::f32::consts::LOG2_E)));
        S::recip(S::add(power, S::splat(2.0)))
    }
}

/// `(e^2x - 1) / (e^2x + 1)`.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub unsafe fn tanh<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as promised by the caller.
    unsafe {
        let power = exp2_m1::<S>(S::mul(x, S::splat(2.0 * std::f32::consts::LOG2_E)));
        S::mul(power, S::recip(S::add(power, S::splat(2.0))))
    }
}
