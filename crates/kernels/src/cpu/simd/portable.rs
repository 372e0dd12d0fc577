//! Portable vectors for other processors.

use std::array::from_fn;

use burn::tensor::bf16;

use super::{MIN_EXPONENT, POLYNOMIAL, Simd};

type Lanes = [f32; 8];

/// Arrays of eight elements, which the compiler maps to registers of NEON, SSE, or none.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Simd for Portable {
    type Vector = Lanes;
    const LANES: usize = 8;
    const TILE_VECTORS: usize = 1;

    methods! {
        fn splat(x: f32) -> Lanes = [x; 8];
        fn load(from: *const f32) -> Lanes = from.cast::<Lanes>().read_unaligned();
        fn load_bf16(from: *const bf16) -> Lanes =
            from.cast::<[u16; 8]>().read_unaligned().map(|x| f32::from_bits(u32::from(x) << 16));
        fn store(to: *mut f32, x: Lanes) -> () = to.cast::<Lanes>().write_unaligned(x);
        fn add(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| a[i] + b[i]);
        fn sub(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| a[i] - b[i]);
        fn mul(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| a[i] * b[i]);
        fn div(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| a[i] / b[i]);
        // `mul_add` is a function call on processors without FMA.
        fn fma(a: Lanes, b: Lanes, c: Lanes) -> Lanes = from_fn(|i| a[i] * b[i] + c[i]);
        fn max(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] });
        fn min(a: Lanes, b: Lanes) -> Lanes = from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] });
        fn recip(x: Lanes) -> Lanes = x.map(|x| 1.0 / x);
        fn gt(a: Lanes, b: Lanes) -> u64 =
            (0..8).fold(0, |bits, i| bits | u64::from(a[i] > b[i]) << i);
        fn select(bits: u64, a: Lanes, b: Lanes) -> Lanes =
            from_fn(|i| if bits >> i & 1 == 1 { a[i] } else { b[i] });
        fn round(x: Lanes) -> Lanes = x.map(f32::round_ties_even);
        fn exp2_integer(x: Lanes) -> Lanes =
            x.map(|x| f32::from_bits(((x as i32).wrapping_add(127) as u32) << 23));
    }

    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const bf16) -> [Lanes; 2] {
        let elements = unsafe { from.cast::<[u16; 16]>().read_unaligned() };
        let element = |i: usize| f32::from_bits(u32::from(elements[i]) << 16);
        [from_fn(|i| element(2 * i)), from_fn(|i| element(2 * i + 1))]
    }
    #[inline(always)]
    unsafe fn load_partial(from: *const f32, count: usize) -> Lanes {
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
    unsafe fn store_partial(to: *mut f32, x: Lanes, count: usize) {
        if count == 8 {
            return unsafe { Self::store(to, x) };
        }
        for (i, x) in x.into_iter().enumerate().take(count) {
            unsafe { *to.add(i) = x };
        }
    }
    #[inline(always)]
    unsafe fn exp2(x: Lanes) -> Lanes {
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
