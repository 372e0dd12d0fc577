//! The few vector operations the kernels are made of, for each kind of processor.
//!
//! Kernels are written once, over [`Simd`], and compiled for each kind inside a
//! function that has its instructions enabled; everything here is therefore
//! inlined. Which kind a machine has is asked at run time.

// Methods have the contract of the trait, and each block is an instruction under it.
#![allow(clippy::undocumented_unsafe_blocks)]

/// Vectors of `f32`, and how many of them the kernels keep in registers.
///
/// # Safety
///
/// Every method must be called where the instructions of the kind are enabled.
/// Pointers must be valid for `LANES` numbers; they need not be aligned.
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
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn sub(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `a · b + c`, rounded once where the processor can.
    unsafe fn fma(a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// The larger of both; `b` where either is NaN.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The smaller of both; `b` where either is NaN.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    unsafe fn div(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// A bit for each lane, set where `a` is above `b`.
    unsafe fn above(a: Self::Vector, b: Self::Vector) -> u64;
    /// `a` where the lane's bit is set, else `b`.
    unsafe fn choose(bits: u64, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `2^x`; zero below 2^-126, NaN of NaN. Off by 1.5e-7 of the result at most.
    unsafe fn exp2(x: Self::Vector) -> Self::Vector;
    /// A square of `LANES` by `LANES` numbers, its rows `from_stride` apart, becomes one
    /// with rows for columns, `into_stride` apart. They do not overlap.
    unsafe fn turn(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
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
const POLYNOMIAL: [f32; 7] = [
    1.535_326e-4,
    1.339_886_6e-3,
    9.618_438e-3,
    5.550_332_4e-2,
    2.402_264_8e-1,
    6.931_472e-1,
    1.0,
];

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LOWEST, POLYNOMIAL, Simd};

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
        unsafe fn div(a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_div_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn above(a: __m512, b: __m512) -> u64 {
            unsafe { u64::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b)) }
        }
        #[inline(always)]
        unsafe fn choose(bits: u64, a: __m512, b: __m512) -> __m512 {
            unsafe { _mm512_mask_blend_ps(bits as u16, b, a) }
        }
        #[inline(always)]
        unsafe fn exp2(x: __m512) -> __m512 {
            unsafe {
                // Not less than: true for NaN too, which then goes through.
                let normal = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(LOWEST));
                let whole = _mm512_roundscale_ps::<8>(x); // to nearest, no exceptions
                let rest = _mm512_sub_ps(x, whole);
                let mut power = _mm512_set1_ps(POLYNOMIAL[0]);
                for coefficient in &POLYNOMIAL[1..] {
                    power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(*coefficient));
                }
                _mm512_maskz_scalef_ps(normal, power, whole)
            }
        }
        #[inline(always)]
        unsafe fn turn(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
            unsafe {
                let mut rows = [_mm512_setzero_ps(); 16];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm512_loadu_ps(from.add(i * from_stride));
                }
                // Four rows at a time: register `c` of a group holds, in quarter `q`, the
                // four numbers of column `4q + c`.
                for group in rows.chunks_exact_mut(4) {
                    let a = _mm512_castps_pd(_mm512_unpacklo_ps(group[0], group[1]));
                    let b = _mm512_castps_pd(_mm512_unpacklo_ps(group[2], group[3]));
                    let c = _mm512_castps_pd(_mm512_unpackhi_ps(group[0], group[1]));
                    let d = _mm512_castps_pd(_mm512_unpackhi_ps(group[2], group[3]));
                    group[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    group[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                    group[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(c, d));
                    group[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(c, d));
                }
                // Then quarters of all groups come together, first the even, then the odd.
                const EVEN: i32 = 0b10_00_10_00;
                const ODD: i32 = 0b11_01_11_01;
                for c in 0..4 {
                    let a = _mm512_shuffle_f32x4::<EVEN>(rows[c], rows[4 + c]);
                    let b = _mm512_shuffle_f32x4::<EVEN>(rows[8 + c], rows[12 + c]);
                    let d = _mm512_shuffle_f32x4::<ODD>(rows[c], rows[4 + c]);
                    let e = _mm512_shuffle_f32x4::<ODD>(rows[8 + c], rows[12 + c]);
                    let columns = [
                        _mm512_shuffle_f32x4::<EVEN>(a, b),
                        _mm512_shuffle_f32x4::<EVEN>(d, e),
                        _mm512_shuffle_f32x4::<ODD>(a, b),
                        _mm512_shuffle_f32x4::<ODD>(d, e),
                    ];
                    for (quarter, column) in columns.into_iter().enumerate() {
                        _mm512_storeu_ps(into.add((4 * quarter + c) * into_stride), column);
                    }
                }
            }
        }
    }

    /// 8 numbers in each of 16 registers: AVX2 and FMA.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Avx2;

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
        unsafe fn div(a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_div_ps(a, b) }
        }
        #[inline(always)]
        unsafe fn above(a: __m256, b: __m256) -> u64 {
            unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) as u64 }
        }
        #[inline(always)]
        unsafe fn choose(bits: u64, a: __m256, b: __m256) -> __m256 {
            unsafe {
                // Each lane looks at its own bit; what it finds becomes its sign.
                let own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
                let bits = _mm256_and_si256(_mm256_set1_epi32(bits as i32), own);
                let set = _mm256_cmpeq_epi32(bits, own);
                _mm256_blendv_ps(b, a, _mm256_castsi256_ps(set))
            }
        }
        #[inline(always)]
        unsafe fn exp2(x: __m256) -> __m256 {
            unsafe {
                let normal = _mm256_cmp_ps::<_CMP_NLT_UQ>(x, _mm256_set1_ps(LOWEST));
                let whole = _mm256_round_ps::<8>(x); // to nearest, no exceptions
                let rest = _mm256_sub_ps(x, whole);
                let mut power = _mm256_set1_ps(POLYNOMIAL[0]);
                for coefficient in &POLYNOMIAL[1..] {
                    power = _mm256_fmadd_ps(power, rest, _mm256_set1_ps(*coefficient));
                }
                // Adds the whole part to the exponent. Results stay below 2^128:
                // attention never raises to more than about zero.
                let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(whole));
                let scaled = _mm256_add_epi32(_mm256_castps_si256(power), exponent);
                // NaN has no exponent to add to.
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
                let scaled = _mm256_blendv_ps(_mm256_castsi256_ps(scaled), x, nan);
                _mm256_and_ps(scaled, normal)
            }
        }
        #[inline(always)]
        unsafe fn turn(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
            unsafe {
                let mut rows = [_mm256_setzero_ps(); 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = _mm256_loadu_ps(from.add(i * from_stride));
                }
                // As above, with halves for quarters.
                for group in rows.chunks_exact_mut(4) {
                    let a = _mm256_castps_pd(_mm256_unpacklo_ps(group[0], group[1]));
                    let b = _mm256_castps_pd(_mm256_unpacklo_ps(group[2], group[3]));
                    let c = _mm256_castps_pd(_mm256_unpackhi_ps(group[0], group[1]));
                    let d = _mm256_castps_pd(_mm256_unpackhi_ps(group[2], group[3]));
                    group[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                    group[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
                    group[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(c, d));
                    group[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(c, d));
                }
                for c in 0..4 {
                    let (a, b) = (rows[c], rows[4 + c]);
                    let (low, high) = (into.add(c * into_stride), into.add((4 + c) * into_stride));
                    _mm256_storeu_ps(low, _mm256_permute2f128_ps::<0x20>(a, b));
                    _mm256_storeu_ps(high, _mm256_permute2f128_ps::<0x31>(a, b));
                }
            }
        }
    }
}

/// Eight numbers in an array, for the compiler to put into whatever registers
/// there are: NEON, SSE, or none.
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
    unsafe fn div(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn above(a: [f32; 8], b: [f32; 8]) -> u64 {
        (0..8).fold(0, |bits, i| bits | u64::from(a[i] > b[i]) << i)
    }
    #[inline(always)]
    unsafe fn choose(bits: u64, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn exp2(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| {
            if x < LOWEST {
                return 0.0;
            }
            let whole = x.round_ties_even();
            let rest = x - whole;
            let power = POLYNOMIAL[1..]
                .iter()
                .fold(POLYNOMIAL[0], |power, c| power * rest + c);
            let scaled = power.to_bits().wrapping_add((whole as i32 as u32) << 23);
            if x.is_nan() {
                x
            } else {
                f32::from_bits(scaled)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest error of `exp2` relative to the result, over what attention
    /// asks for, and its behaviour at the ends.
    unsafe fn judge_exp2<S: Simd>() {
        let mut worst = 0f64;
        let mut x = -125.9f32;
        while x <= 1.0 {
            let mut out = [0f32; 16];
            unsafe { S::store(out.as_mut_ptr(), S::exp2(S::splat(x))) };
            let exact = f64::from(x).exp2();
            worst = worst.max((f64::from(out[0]) - exact).abs() / exact);
            x += 0.000_731;
        }
        assert!(worst < 1.5e-7, "off by {worst:e}");
        for (x, wanted) in [
            (f32::NEG_INFINITY, 0.0),
            (-127.0, 0.0),
            (-1e30, 0.0),
            (0.0, 1.0),
        ] {
            let mut out = [0f32; 16];
            unsafe { S::store(out.as_mut_ptr(), S::exp2(S::splat(x))) };
            assert_eq!(out[0], wanted, "2^{x}");
        }
        let mut out = [0f32; 16];
        unsafe { S::store(out.as_mut_ptr(), S::exp2(S::splat(f32::NAN))) };
        assert!(out[0].is_nan());
    }

    unsafe fn judge_choose<S: Simd>() {
        let mut out = [0f32; 16];
        let bits = 0b1010_0110_1100_0101;
        unsafe {
            S::store(
                out.as_mut_ptr(),
                S::choose(bits, S::splat(1.0), S::splat(2.0)),
            )
        };
        for (lane, &got) in out.iter().take(S::LANES).enumerate() {
            assert_eq!(got, if bits >> lane & 1 == 1 { 1.0 } else { 2.0 });
        }
    }

    unsafe fn judge_turn<S: Simd>() {
        let (from_stride, into_stride) = (S::LANES + 3, S::LANES + 1);
        let from: Vec<f32> = (0..S::LANES * from_stride).map(|at| at as f32).collect();
        let mut into = vec![-1.0; S::LANES * into_stride];
        unsafe { S::turn(from.as_ptr(), from_stride, into.as_mut_ptr(), into_stride) };
        for (x, column) in into.chunks_exact(into_stride).enumerate() {
            for (i, &got) in column[..S::LANES].iter().enumerate() {
                assert_eq!(got, from[i * from_stride + x], "row {i}, column {x}");
            }
            assert_eq!(column[S::LANES], -1.0, "beside the square");
        }
    }

    #[test]
    fn the_portable_kind_is_right() {
        unsafe {
            judge_exp2::<Portable>();
            judge_choose::<Portable>();
            judge_turn::<Portable>();
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_kinds_this_processor_has_are_right() {
        #[target_feature(enable = "avx512f")]
        unsafe fn avx512() {
            unsafe {
                judge_exp2::<Avx512>();
                judge_choose::<Avx512>();
                judge_turn::<Avx512>();
            }
        }
        #[target_feature(enable = "avx2,fma")]
        unsafe fn avx2() {
            unsafe {
                judge_exp2::<Avx2>();
                judge_choose::<Avx2>();
                judge_turn::<Avx2>();
            }
        }
        if is_x86_feature_detected!("avx512f") {
            unsafe { avx512() };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            unsafe { avx2() };
        }
    }
}
