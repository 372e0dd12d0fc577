//! The few vector operations that kernels are made of, for each instruction set.
//!
//! Kernels are written once, over [`Simd`], and compiled for each set inside a function that has
//! its instructions enabled, by [`dispatch!`](crate::dispatch); everything here is therefore
//! inlined.

// Methods have the contract of the trait, and each block is an instruction under it.
#![allow(clippy::undocumented_unsafe_blocks)]

mod portable;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use self::portable::Portable;
#[cfg(target_arch = "x86_64")]
pub use self::x86::{Avx2, Avx512};

/// Vectors of `f32`, and how many of them a matmul holds in registers.
///
/// # Safety
///
/// Every method must be called where the instructions of the set are enabled. Pointers must
/// be valid for as many elements as are read or written; they need not be aligned.
#[allow(clippy::missing_safety_doc)] // it is the trait's
pub trait Simd: Copy {
    /// A register of elements.
    type Vector: Copy;
    /// Elements in it.
    const LANES: usize;
    /// Registers side by side in the tile of a matmul.
    const WIDE: usize;

    /// `x` in all lanes.
    unsafe fn splat(x: f32) -> Self::Vector;
    /// `LANES` elements from memory.
    unsafe fn load(from: *const f32) -> Self::Vector;
    /// `LANES` elements to memory.
    unsafe fn store(to: *mut f32, x: Self::Vector);
    /// The first `count` elements, up to all of them; zeros for the others.
    unsafe fn load_some(from: *const f32, count: usize) -> Self::Vector;
    /// The first `count` elements to memory.
    unsafe fn store_some(to: *mut f32, x: Self::Vector, count: usize);
    /// `a + b`
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a - b`
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b`
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a / b`
    unsafe fn div(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`, rounded once where the processor can.
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// The larger of both; `b` where either is NaN.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of both; `b` where either is NaN.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `1 / x`, off by two units at most.
    unsafe fn inverse(x: Self::Vector) -> Self::Vector;
    /// A bit for each lane, set where `a` is above `b`.
    unsafe fn above(a: Self::Vector, b: Self::Vector) -> u64;
    /// `a` where the lane's bit is set, else `b`.
    unsafe fn choose(bits: u64, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// To the nearest whole number.
    unsafe fn round(x: Self::Vector) -> Self::Vector;
    /// `2^x` of a whole `x` from -126 to 127; anything of NaN.
    unsafe fn power_of_two(x: Self::Vector) -> Self::Vector;
    /// `2^x`; zero below 2^-126, NaN of NaN. Off by 1.5e-7 of the result at most.
    unsafe fn exp2(x: Self::Vector) -> Self::Vector;
    /// A square of `LANES` by `LANES` elements, its rows `from_stride` apart, becomes one
    /// with rows for columns, `into_stride` apart. They do not overlap.
    unsafe fn transpose(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
        for i in 0..Self::LANES {
            for x in 0..Self::LANES {
                // SAFETY: within the squares, which the caller may read and write.
                unsafe { *into.add(x * into_stride + i) = *from.add(i * from_stride + x) };
            }
        }
    }
}

/// Below this, `2^x` is not a normal number, and counts as zero.
const LOWEST: f32 = -126.0;

/// `2^f` for `f` in `[-1/2, 1/2]`, highest power first: the smallest relative error
/// (2e-9) with a last coefficient of 1, so that `2^0` is exact. What is left is rounding.
/// All but the last are `(2^f - 1) / f`.
const POLYNOMIAL: [f32; 7] = [
    1.535_326e-4,
    1.339_886_6e-3,
    9.618_438e-3,
    5.550_332_4e-2,
    2.402_264_8e-1,
    6.931_472e-1,
    1.0,
];

/// Beyond this, in either direction, sigmoid and tanh are 0, 1 or -1 but for 1e-18.
const FAR: f32 = 60.0;

/// `2^x - 1`, as exact near zero as elsewhere; `x` is taken for `±FAR` beyond it, and NaN
/// stays NaN.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
unsafe fn exp2_less_one<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe {
        let x = S::min(S::splat(FAR), S::max(S::splat(-FAR), x));
        let whole = S::round(x);
        let rest = S::sub(x, whole);
        let mut power = S::splat(POLYNOMIAL[0]);
        for coefficient in &POLYNOMIAL[1..6] {
            power = S::fma(power, rest, S::splat(*coefficient));
        }
        let scale = S::power_of_two(whole);
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
    // SAFETY: as the caller promised.
    unsafe {
        let power = exp2_less_one::<S>(S::mul(x, S::splat(-std::f32::consts::LOG2_E)));
        S::inverse(S::add(power, S::splat(2.0)))
    }
}

/// `(e^2x - 1) / (e^2x + 1)`.
///
/// # Safety
///
/// The instructions of `S` are enabled.
#[inline(always)]
pub unsafe fn tanh<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe {
        let power = exp2_less_one::<S>(S::mul(x, S::splat(2.0 * std::f32::consts::LOG2_E)));
        S::mul(power, S::inverse(S::add(power, S::splat(2.0))))
    }
}
