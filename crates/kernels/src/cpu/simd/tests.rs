//! Every instruction set that this processor has computes what [`Simd`] says.

use super::*;
use crate::cpu::InstructionSet;
use crate::cpu::dispatch;

/// What a function makes of a number in every lane, in the first.
///
/// # Safety
///
/// The instructions of `S` are enabled.
unsafe fn first<S: Simd>(f: unsafe fn(S::Vector) -> S::Vector, x: f32) -> f32 {
    let mut out = [0_f32; 16];
    // SAFETY: as the caller promised; there is room for the widest.
    unsafe { S::store(out.as_mut_ptr(), f(S::splat(x))) };
    out[0]
}

/// Both functions over all that gates ask for, relative to the result; and the ends.
unsafe fn judge_gates<S: Simd>() {
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

/// The largest error of `exp2` relative to the result, over what attention
/// asks for, and its behaviour at the ends.
unsafe fn judge_exp2<S: Simd>() {
    // SAFETY: the test enables the instructions.
    let exp2 = |x| unsafe { first::<S>(S::exp2, x) };
    let mut worst = 0f64;
    let mut x = -125.9f32;
    while x <= 1.0 {
        let exact = f64::from(x).exp2();
        worst = worst.max((f64::from(exp2(x)) - exact).abs() / exact);
        x += 0.000_731;
    }
    assert!(worst < 1.5e-7, "off by {worst:e}");
    for (x, wanted) in [
        (f32::NEG_INFINITY, 0.0),
        (-127.0, 0.0),
        (-1e30, 0.0),
        (0.0, 1.0),
    ] {
        assert_eq!(exp2(x), wanted, "2^{x}");
    }
    assert!(exp2(f32::NAN).is_nan());
}

/// All of the above.
#[inline(always)]
unsafe fn judge_all<S: Simd>() {
    unsafe {
        judge_gates::<S>();
        judge_some::<S>();
        judge_exp2::<S>();
    }
}

dispatch! {
    /// [`judge_all`] with the instructions of a set.
    unsafe fn judge() by judge_all;
}

#[test]
fn all_sets_that_this_processor_has_are_right() {
    for set in InstructionSet::available() {
        // SAFETY: the processor has it.
        unsafe { judge(set) };
    }
}
