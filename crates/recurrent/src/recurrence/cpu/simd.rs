//! The few vector operations the kernels are made of, for each kind of processor.
//!
//! Kernels are written once, over [`Simd`], and compiled for each kind inside a function
//! that has its instructions enabled; everything here is therefore inlined. Which kind a
//! machine has is asked at run time.

// Methods have the contract of the trait, and each block is an instruction under it.
#![allow(clippy::undocumented_unsafe_blocks)]

/// Vectors of `f32`.
///
/// # Safety
///
/// Every method must be called where the instructions of the kind are enabled. Pointers must
/// be valid for as many numbers as are read or written; they need not be aligned.
pub(super) trait Simd: Copy {
    /// A register of numbers.
    type Vector: Copy;
    /// Numbers in it.
    const LANES: usize;
    /// Registers side by side in the tile of the matmul.
    const WIDE: usize;

    unsafe fn splat(x: f32) -> Self::Vector;
    unsafe fn load(from: *const f32) -> Self::Vector;
    unsafe fn store(to: *mut f32, x: Self::Vector);
    /// The first `count` numbers, up to all of them; zeros for the others.
    unsafe fn load_some(from: *const f32, count: usize) -> Self::Vector;
    unsafe fn store_some(to: *mut f32, x: Self::Vector, count: usize);
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`, rounded once where the processor can.
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// `b` where either is NaN.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `b` where either is NaN.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `1 / x`, off by two units at most.
    unsafe fn inverse(x: Self::Vector) -> Self::Vector;
    /// To the nearest whole number.
    unsafe fn round(x: Self::Vector) -> Self::Vector;
    /// `2^x` of a whole `x` from -126 to 127; anything of NaN.
    unsafe fn power_of_two(x: Self::Vector) -> Self::Vector;
}

/// `(2^f - 1) / f` for `f` in `[-1/2, 1/2]`, highest power first.
const POLYNOMIAL: [f32; 6] = [
    1.535_326e-4,
    1.339_886_6e-3,
    9.618_438e-3,
    5.550_332_4e-2,
    2.402_264_8e-1,
    6.931_472e-1,
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
        for coefficient in &POLYNOMIAL[1..] {
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
pub(super) unsafe fn sigmoid<S: Simd>(x: S::Vector) -> S::Vector {
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
pub(super) unsafe fn tanh<S: Simd>(x: S::Vector) -> S::Vector {
    // SAFETY: as the caller promised.
    unsafe {
        let power = exp2_less_one::<S>(S::mul(x, S::splat(2.0 * std::f32::consts::LOG2_E)));
        S::mul(power, S::inverse(S::add(power, S::splat(2.0))))
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Simd;

    /// 16 numbers in each of 32 registers: AVX-512F.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx512;

    impl Simd for Avx512 {
        type Vector = __m512;
        const LANES: usize = 16;
        const WIDE: usize = 4;

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m512 {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m512 {
            unsafe { _mm512_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, x: __m512) {
            unsafe { _mm512_storeu_ps(to, x) }
        }
        #[inline(always)]
        unsafe fn load_some(from: *const f32, count: usize) -> __m512 {
            unsafe { _mm512_maskz_loadu_ps(first(count), from) }
        }
        #[inline(always)]
        unsafe fn store_some(to: *mut f32, x: __m512, count: usize) {
            unsafe { _mm512_mask_storeu_ps(to, first(count), x) }
        }
        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn max(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn min(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_min_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn inverse(x: __m512) -> __m512 {
            // A division takes as long as five of these; one step of Newton's makes 14 bits
            // all of them.
            unsafe {
                let about = _mm512_rcp14_ps(x);
                let error = _mm512_fnmadd_ps(x, about, _mm512_set1_ps(1.0));
                _mm512_fmadd_ps(about, error, about)
            }
        }
        #[inline(always)]
        unsafe fn round(x: __m512) -> __m512 {
            unsafe { _mm512_roundscale_ps::<8>(x) } // to nearest, no exceptions
        }
        #[inline(always)]
        unsafe fn power_of_two(x: __m512) -> __m512 {
            unsafe { _mm512_scalef_ps(_mm512_set1_ps(1.0), x) }
        }
    }

    /// A bit for each of the first lanes.
    #[inline(always)]
    fn first(count: usize) -> __mmask16 {
        ((1_u32 << count) - 1) as __mmask16
    }

    /// 8 numbers in each of 16 registers: AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2;

    /// Lanes that are taken, then lanes that are not: a mask for the first few is a part of it.
    static TAKEN: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    /// The sign of the first lanes is set.
    #[inline(always)]
    unsafe fn lanes(count: usize) -> __m256i {
        // SAFETY: eight numbers from one of the first nine on.
        unsafe { _mm256_loadu_si256(TAKEN.as_ptr().add(8 - count.min(8)).cast()) }
    }

    impl Simd for Avx2 {
        type Vector = __m256;
        const LANES: usize = 8;
        const WIDE: usize = 2;

        #[inline(always)]
        unsafe fn splat(x: f32) -> __m256 {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> __m256 {
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut f32, x: __m256) {
            unsafe { _mm256_storeu_ps(to, x) }
        }
        #[inline(always)]
        unsafe fn load_some(from: *const f32, count: usize) -> __m256 {
            unsafe { _mm256_maskload_ps(from, lanes(count)) }
        }
        #[inline(always)]
        unsafe fn store_some(to: *mut f32, x: __m256, count: usize) {
            unsafe { _mm256_maskstore_ps(to, lanes(count), x) }
        }
        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn sub(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_sub_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn mul(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        unsafe fn max(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_max_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn min(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_min_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn inverse(x: __m256) -> __m256 {
            unsafe { _mm256_div_ps(_mm256_set1_ps(1.0), x) }
        }
        #[inline(always)]
        unsafe fn round(x: __m256) -> __m256 {
            unsafe { _mm256_round_ps::<8>(x) } // to nearest, no exceptions
        }
        #[inline(always)]
        unsafe fn power_of_two(x: __m256) -> __m256 {
            unsafe {
                // The exponent of a number is kept 127 too large.
                let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
            }
        }
    }
}

/// Eight numbers in an array, for the compiler to put into whatever registers there are:
/// NEON, SSE, or none.
#[derive(Clone, Copy)]
pub(super) struct Portable;

impl Simd for Portable {
    type Vector = [f32; 8];
    const LANES: usize = 8;
    const WIDE: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; 8] {
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, x: [f32; 8]) {
        unsafe { to.cast::<[f32; 8]>().write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_some(from: *const f32, count: usize) -> [f32; 8] {
        if count == 8 {
            return unsafe { Self::load(from) };
        }
        let mut x = [0.0; 8];
        for (at, x) in x.iter_mut().enumerate().take(count) {
            *x = unsafe { *from.add(at) };
        }
        x
    }
    #[inline(always)]
    unsafe fn store_some(to: *mut f32, x: [f32; 8], count: usize) {
        if count == 8 {
            return unsafe { Self::store(to, x) };
        }
        for (at, x) in x.into_iter().enumerate().take(count) {
            unsafe { *to.add(at) = x };
        }
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        // `mul_add` would be a call where the processor has no such instruction.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn inverse(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| 1.0 / x)
    }
    #[inline(always)]
    unsafe fn round(x: [f32; 8]) -> [f32; 8] {
        x.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn power_of_two(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| f32::from_bits(((x as i32).wrapping_add(127) as u32) << 23))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both functions over all that gates ask for, relative to the result; and the ends.
    unsafe fn judge<S: Simd>() {
        let mut out = [0_f32; 16];
        let mut call = |f: unsafe fn(S::Vector) -> S::Vector, x: f32| {
            // SAFETY: the test enables the instructions; there is room for the widest.
            unsafe { S::store(out.as_mut_ptr(), f(S::splat(x))) };
            out[0]
        };
        let mut worst = [0_f64; 2];
        let mut x = -20.0_f32;
        while x < 20.0 {
            for x in [x, x * 1e-4] {
                let exact = [1.0 / (1.0 + (-f64::from(x)).exp()), f64::from(x).tanh()];
                let got = [call(sigmoid::<S>, x), call(tanh::<S>, x)];
                for ((worst, exact), got) in worst.iter_mut().zip(exact).zip(got) {
                    *worst = worst.max((f64::from(got) - exact).abs() / exact.abs());
                }
            }
            x += 0.000_731;
        }
        // The argument's rounding grows with it, up to 20 · log2(e) · 2^-25 of the result.
        assert!(worst[0] < 2e-6 && worst[1] < 4e-7, "off by {worst:?}");
        for x in [200.0, f32::INFINITY] {
            assert_eq!([call(sigmoid::<S>, x), call(tanh::<S>, x)], [1.0, 1.0]);
            assert!(call(sigmoid::<S>, -x) < 1e-17);
            assert_eq!(call(tanh::<S>, -x), -1.0);
        }
        assert_eq!([call(sigmoid::<S>, 0.0), call(tanh::<S>, 0.0)], [0.5, 0.0]);
        assert!(call(sigmoid::<S>, f32::NAN).is_nan() && call(tanh::<S>, f32::NAN).is_nan());
    }

    unsafe fn judge_some<S: Simd>() {
        let from: Vec<f32> = (1..=16).map(|x| x as f32).collect();
        for count in 0..=S::LANES {
            let mut out = [-1_f32; 17];
            // SAFETY: the test enables the instructions; all is within the arrays.
            unsafe {
                let some = S::load_some(from.as_ptr(), count);
                S::store(out.as_mut_ptr(), some);
                for (at, got) in out.iter().enumerate().take(S::LANES) {
                    assert_eq!(*got, if at < count { from[at] } else { 0.0 });
                }
                out = [-1.0; 17];
                S::store_some(out.as_mut_ptr(), S::splat(3.0), count);
            }
            for (at, got) in out.iter().enumerate() {
                assert_eq!(*got, if at < count { 3.0 } else { -1.0 });
            }
        }
    }

    #[test]
    fn the_portable_kind_is_right() {
        // SAFETY: it needs no instructions.
        unsafe {
            judge::<Portable>();
            judge_some::<Portable>();
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_kinds_this_processor_has_are_right() {
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512() {
            unsafe {
                judge::<Avx512>();
                judge_some::<Avx512>();
            }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2() {
            unsafe {
                judge::<Avx2>();
                judge_some::<Avx2>();
            }
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: as was asked.
            unsafe { avx512() };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: as was asked.
            unsafe { avx2() };
        }
    }
}
