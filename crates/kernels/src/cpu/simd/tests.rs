//! Tests of [`Simd`] on every instruction set of this processor.

use super::*;
use crate::cpu::InstructionSet;
use crate::cpu::dispatch;

/// Applies a function to a vector of `x` and returns the first lane.
unsafe fn first<S: Simd>(f: unsafe fn(S::Vector) -> S::Vector, x: f32) -> f32 {
    let mut out = [0_f32; 16];
    // SAFETY: as promised by the caller; `out` holds the widest vector.
    unsafe { S::store(out.as_mut_ptr(), f(S::splat(x))) };
    out[0]
}

/// Relative errors of sigmoid and tanh over the range of gates, and special values.
unsafe fn check_gates<S: Simd>() {
    // SAFETY: the test enables the instructions.
    let call = |f: unsafe fn(S::Vector) -> S::Vector, x: f32| unsafe { first::<S>(f, x) };
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
    // The rounding error of the argument grows with it, up to 20 · log2(e) · 2^-25 of the result.
    assert!(
        worst[0] < 2e-6 && worst[1] < 4e-7,
        "relative error {worst:?}"
    );
    for x in [200.0, f32::INFINITY] {
        assert_eq!([call(sigmoid::<S>, x), call(tanh::<S>, x)], [1.0, 1.0]);
        assert!(call(sigmoid::<S>, -x) < 1e-17);
        assert_eq!(call(tanh::<S>, -x), -1.0);
    }
    assert_eq!([call(sigmoid::<S>, 0.0), call(tanh::<S>, 0.0)], [0.5, 0.0]);
    assert!(call(sigmoid::<S>, f32::NAN).is_nan() && call(tanh::<S>, f32::NAN).is_nan());
}

unsafe fn check_partial<S: Simd>() {
    let from: Vec<f32> = (1..=16).map(|x| x as f32).collect();
    for count in 0..=S::LANES {
        let mut out = [-1_f32; 17];
        // SAFETY: the test enables the instructions; all accesses are within the arrays.
        unsafe {
            let partial = S::load_partial(from.as_ptr(), count);
            S::store(out.as_mut_ptr(), partial);
            for (i, got) in out.iter().enumerate().take(S::LANES) {
                assert_eq!(*got, if i < count { from[i] } else { 0.0 });
            }
            out = [-1.0; 17];
            S::store_partial(out.as_mut_ptr(), S::splat(3.0), count);
        }
        for (i, got) in out.iter().enumerate() {
            assert_eq!(*got, if i < count { 3.0 } else { -1.0 });
        }
    }
}

/// Relative error of `exp2` over the range of softmax exponents, and special values.
unsafe fn check_exp2<S: Simd>() {
    // SAFETY: the test enables the instructions.
    let exp2 = |x| unsafe { first::<S>(S::exp2, x) };
    let mut worst = 0f64;
    let mut x = -125.9f32;
    while x <= 1.0 {
        let exact = f64::from(x).exp2();
        worst = worst.max((f64::from(exp2(x)) - exact).abs() / exact);
        x += 0.000_731;
    }
    assert!(worst < 1.5e-7, "relative error {worst:e}");
    for (x, expected) in [
        (f32::NEG_INFINITY, 0.0),
        (-127.0, 0.0),
        (-1e30, 0.0),
        (0.0, 1.0),
    ] {
        assert_eq!(exp2(x), expected, "2^{x}");
    }
    assert!(exp2(f32::NAN).is_nan());
}

/// Sums and loads of bf16, on values of which no sum is rounded.
unsafe fn check_sums_and_bf16<S: Simd>() {
    let values: Vec<f32> = (0..256).map(|i| (i * 7 % 128) as f32).collect();
    let halves: Vec<bf16> = values.iter().map(|x| bf16::from_f32(*x)).collect();
    let mut out = [0_f32; 32];
    // SAFETY: the test enables the instructions; all accesses are within the arrays.
    unsafe { S::store(out.as_mut_ptr(), S::row_sums(values.as_ptr())) };
    for (row, got) in values.chunks_exact(S::LANES).zip(&out).take(S::LANES) {
        assert_eq!(*got, row.iter().sum::<f32>());
    }
    // SAFETY: as above.
    unsafe { S::store(out.as_mut_ptr(), S::load_bf16(halves.as_ptr())) };
    assert_eq!(out[..S::LANES], values[..S::LANES]);
    // SAFETY: as above.
    unsafe {
        let [even, odd] = S::load_bf16_pair(halves.as_ptr());
        S::store(out.as_mut_ptr(), even);
        S::store(out.as_mut_ptr().add(S::LANES), odd);
    }
    for (i, got) in out.iter().enumerate().take(2 * S::LANES) {
        let (vector, lane) = (i / S::LANES, i % S::LANES);
        assert_eq!(*got, values[2 * lane + vector]);
        assert_eq!(bf16::pair_index(S::LANES, vector, lane), 2 * lane + vector);
    }
}

#[inline(always)]
unsafe fn check_all<S: Simd>() {
    unsafe {
        check_sums_and_bf16::<S>();
        check_gates::<S>();
        check_partial::<S>();
        check_exp2::<S>();
    }
}

dispatch! {
    unsafe fn check() by check_all;
}

#[test]
fn all_available_instruction_sets_are_correct() {
    for set in InstructionSet::available() {
        // SAFETY: the processor supports it.
        unsafe { check(set) };
    }
}
