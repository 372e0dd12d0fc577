//! Portable vectors for other processors.

use super::{MIN_EXPONENT, POLYNOMIAL, Simd};

/// Arrays of eight elements, which the compiler maps to registers of NEON, SSE, or none.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Simd for Portable {
    type Vector = [f32; 8];
    const LANES: usize = 8;
    const TILE_VECTORS: usize = 1;

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
    unsafe fn load_partial(from: *const f32, count: usize) -> [f32; 8] {
        if count == 8 {
            return unsafe { Self::load(from) };
        }
        let mut x = [0.0; 8];
        for (i, x) in x.iter_mut().enumerate().take(count) {
            *x = unsafe { *from.add(i) };
        }
        x
    }
    #[inline(always)]
    unsafe fn store_partial(to: *mut f32, x: [f32; 8], count: usize) {
        if count == 8 {
            return unsafe { Self::store(to, x) };
        }
        for (i, x) in x.into_iter().enumerate().take(count) {
            unsafe { *to.add(i) = x };
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
        // `mul_add` is a function call on processors without FMA.
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
    unsafe fn recip(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| 1.0 / x)
    }
    #[inline(always)]
    unsafe fn round(x: [f32; 8]) -> [f32; 8] {
        x.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2_integer(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| f32::from_bits(((x as i32).wrapping_add(127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn div(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    unsafe fn gt(a: [f32; 8], b: [f32; 8]) -> u64 {
        (0..8).fold(0, |bits, i| bits | u64::from(a[i] > b[i]) << i)
    }
    #[inline(always)]
    unsafe fn select(bits: u64, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        std::array::from_fn(|i| if bits >> i & 1 == 1 { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn exp2(x: [f32; 8]) -> [f32; 8] {
        x.map(|x| {
            if x < MIN_EXPONENT {
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
