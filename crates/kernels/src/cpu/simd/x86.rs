//! AVX-512 and AVX2.

use std::arch::x86_64::*;

use burn::tensor::bf16;

use super::{MIN_EXPONENT, POLYNOMIAL, Simd};

/// 16 elements in each of 32 registers: AVX-512F.
#[derive(Debug, Clone, Copy)]
pub struct Avx512;

impl Simd for Avx512 {
    type Vector = __m512;
    const LANES: usize = 16;
    const TILE_VECTORS: usize = 4;

    methods! {
        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn load(from: *const f32) -> __m512 = _mm512_loadu_ps(from);
        fn load_bf16(from: *const bf16) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))
        ));
        fn store(to: *mut f32, x: __m512) -> () = _mm512_storeu_ps(to, x);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn load_partial(from: *const f32, count: usize) -> __m512 =
            _mm512_maskz_loadu_ps(first(count), from);
        fn store_partial(to: *mut f32, x: __m512, count: usize) -> () =
            _mm512_mask_storeu_ps(to, first(count), x);
        fn gt(a: __m512, b: __m512) -> u64 = u64::from(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b));
        fn select(bits: u64, a: __m512, b: __m512) -> __m512 =
            _mm512_mask_blend_ps(bits as u16, b, a);
        fn round(x: __m512) -> __m512 =
            _mm512_roundscale_ps::<8>(x); // to nearest, no exceptions
        fn exp2_integer(x: __m512) -> __m512 = _mm512_scalef_ps(_mm512_set1_ps(1.0), x);
    }

    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const bf16) -> [__m512; 2] {
        unsafe {
            let pairs = _mm512_loadu_si512(from.cast());
            let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32));
            let even = _mm512_slli_epi32::<16>(pairs);
            [_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd)]
        }
    }

    #[inline(always)]
    unsafe fn recip(x: __m512) -> __m512 {
        // One Newton step refines 14 bits to full precision; a division takes five times as long.
        unsafe {
            let estimate = _mm512_rcp14_ps(x);
            let error = _mm512_fnmadd_ps(x, estimate, _mm512_set1_ps(1.0));
            _mm512_fmadd_ps(estimate, error, estimate)
        }
    }

    #[inline(always)]
    unsafe fn exp2(x: __m512) -> __m512 {
        unsafe {
            // Not less than: also true for NaN, which is propagated.
            let normal = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(MIN_EXPONENT));
            let whole = Self::round(x);
            let rest = _mm512_sub_ps(x, whole);
            let mut power = _mm512_set1_ps(POLYNOMIAL[0]);
            for coefficient in &POLYNOMIAL[1..] {
                power = _mm512_fmadd_ps(power, rest, _mm512_set1_ps(*coefficient));
            }
            _mm512_maskz_scalef_ps(normal, power, whole)
        }
    }

    #[inline(always)]
    unsafe fn row_sums(rows: *const f32) -> __m512 {
        unsafe {
            // The quarters of each get the sums of the quarters of four rows.
            let mut groups = [_mm512_setzero_ps(); 4];
            for (i, group) in groups.iter_mut().enumerate() {
                let mut pairs = [_mm512_setzero_pd(); 2];
                for (j, pair) in pairs.iter_mut().enumerate() {
                    let row = rows.add((4 * i + 2 * j) * 16);
                    let (a, b) = (_mm512_loadu_ps(row), _mm512_loadu_ps(row.add(16)));
                    let sum = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                    *pair = _mm512_castps_pd(sum);
                }
                let low = _mm512_unpacklo_pd(pairs[0], pairs[1]);
                let high = _mm512_unpackhi_pd(pairs[0], pairs[1]);
                *group = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
            }
            let [a, b, c, d] = groups;
            add_quarters(add_quarters(a, b), add_quarters(c, d))
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 16];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = _mm512_loadu_ps(from.add(i * from_stride));
            }
            for (i, column) in transpose_16(rows).into_iter().enumerate() {
                _mm512_storeu_ps(into.add(i * into_stride), column);
            }
        }
    }
}

/// For two pairs of vectors whose 128-bit quarters contain partial sums: the sums of adjacent quarters.
#[inline(always)]
unsafe fn add_quarters(a: __m512, b: __m512) -> __m512 {
    unsafe {
        let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(a, b);
        let odd = _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b);
        _mm512_add_ps(even, odd)
    }
}

/// The columns of 16 rows, as they are in memory: NaN keep their bits.
///
/// # Safety
///
/// AVX-512 F is enabled.
#[inline(always)]
pub(crate) unsafe fn transpose_16(mut rows: [__m512; 16]) -> [__m512; 16] {
    unsafe {
        // Four rows at a time: quarter `q` of register `c` of a group holds the four elements
        // of column `4q + c`.
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
        // Then gather the quarters of all groups, first the even, then the odd.
        const EVEN: i32 = 0b10_00_10_00;
        const ODD: i32 = 0b11_01_11_01;
        let mut columns = [_mm512_setzero_ps(); 16];
        for c in 0..4 {
            let a = _mm512_shuffle_f32x4::<EVEN>(rows[c], rows[4 + c]);
            let b = _mm512_shuffle_f32x4::<EVEN>(rows[8 + c], rows[12 + c]);
            let d = _mm512_shuffle_f32x4::<ODD>(rows[c], rows[4 + c]);
            let e = _mm512_shuffle_f32x4::<ODD>(rows[8 + c], rows[12 + c]);
            columns[c] = _mm512_shuffle_f32x4::<EVEN>(a, b);
            columns[4 + c] = _mm512_shuffle_f32x4::<EVEN>(d, e);
            columns[8 + c] = _mm512_shuffle_f32x4::<ODD>(a, b);
            columns[12 + c] = _mm512_shuffle_f32x4::<ODD>(d, e);
        }
        columns
    }
}

/// A mask of the first lanes.
#[inline(always)]
fn first(count: usize) -> __mmask16 {
    ((1_u32 << count) - 1) as __mmask16
}

/// 8 elements in each of 16 registers: AVX2 and FMA.
#[derive(Debug, Clone, Copy)]
pub struct Avx2;

impl Simd for Avx2 {
    type Vector = __m256;
    const LANES: usize = 8;
    const TILE_VECTORS: usize = 2;

    methods! {
        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn load(from: *const f32) -> __m256 = _mm256_loadu_ps(from);
        fn load_bf16(from: *const bf16) -> __m256 = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(
            _mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))
        ));
        fn store(to: *mut f32, x: __m256) -> () = _mm256_storeu_ps(to, x);
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        fn load_partial(from: *const f32, count: usize) -> __m256 =
            _mm256_maskload_ps(from, lane_mask(count));
        fn store_partial(to: *mut f32, x: __m256, count: usize) -> () =
            _mm256_maskstore_ps(to, lane_mask(count), x);
        fn recip(x: __m256) -> __m256 = _mm256_div_ps(_mm256_set1_ps(1.0), x);
        fn gt(a: __m256, b: __m256) -> u64 =
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(a, b)) as u64;
        fn round(x: __m256) -> __m256 = _mm256_round_ps::<8>(x); // to nearest, no exceptions
    }

    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const bf16) -> [__m256; 2] {
        unsafe {
            let pairs = _mm256_loadu_si256(from.cast());
            let odd = _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32 as i32));
            let even = _mm256_slli_epi32::<16>(pairs);
            [_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd)]
        }
    }

    #[inline(always)]
    unsafe fn select(bits: u64, a: __m256, b: __m256) -> __m256 {
        unsafe {
            // Each lane tests its own bit and becomes all ones or zeros.
            let own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let bits = _mm256_and_si256(_mm256_set1_epi32(bits as i32), own);
            let set = _mm256_cmpeq_epi32(bits, own);
            _mm256_blendv_ps(b, a, _mm256_castsi256_ps(set))
        }
    }

    #[inline(always)]
    unsafe fn exp2_integer(x: __m256) -> __m256 {
        unsafe {
            // The exponent is stored with a bias of 127.
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(x), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    unsafe fn exp2(x: __m256) -> __m256 {
        unsafe {
            let normal = _mm256_cmp_ps::<_CMP_NLT_UQ>(x, _mm256_set1_ps(MIN_EXPONENT));
            let whole = Self::round(x);
            let rest = _mm256_sub_ps(x, whole);
            let mut power = _mm256_set1_ps(POLYNOMIAL[0]);
            for coefficient in &POLYNOMIAL[1..] {
                power = _mm256_fmadd_ps(power, rest, _mm256_set1_ps(*coefficient));
            }
            // Adds the integer part to the exponent. Results stay below 2^128 because softmax
            // exponents are at most about zero.
            let exponent = _mm256_slli_epi32::<23>(_mm256_cvtps_epi32(whole));
            let scaled = _mm256_add_epi32(_mm256_castps_si256(power), exponent);
            // Adding to the exponent bits would corrupt NaN.
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
            let scaled = _mm256_blendv_ps(_mm256_castsi256_ps(scaled), x, nan);
            _mm256_and_ps(scaled, normal)
        }
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, from_stride: usize, into: *mut f32, into_stride: usize) {
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 8];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = _mm256_loadu_ps(from.add(i * from_stride));
            }
            // As above, with halves instead of quarters.
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

/// Eight set lanes and eight clear ones: a window of it is a mask of the first lanes.
static LANE_MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// A mask of the first lanes.
#[inline(always)]
unsafe fn lane_mask(count: usize) -> __m256i {
    // SAFETY: eight elements from an offset up to 8.
    unsafe { _mm256_loadu_si256(LANE_MASK.as_ptr().add(8 - count.min(8)).cast()) }
}
