//! What the bodies for CPUs share.
//!
//! Loops are plain Rust over chunks, compiled once for each kind of processor by
//! [`compiled_for_each_processor`]; which one runs is decided when it runs. Sums go by
//! [`LANES`] partial sums, so that a compiler may put them side by side, and so that they are
//! the same whatever the processor.

pub(crate) mod exp;
pub(crate) mod parallel;

/// Numbers that are summed side by side: those of the widest register.
pub(crate) const LANES: usize = 16;

/// The sum of the numbers.
#[inline(always)]
pub(crate) fn sum(lanes: [f32; LANES]) -> f32 {
    // By halves: as exact as it gets, and what a processor does fastest.
    let mut lanes = lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// A function whose body, an `#[inline(always)]` function of the same arguments, is compiled
/// for AVX-512, for AVX2 and for whatever else there is.
macro_rules! compiled_for_each_processor {
    ($(#[$meta:meta])* $name:ident by $body:ident ($($arg:ident: $kind:ty),* $(,)?) $(-> $result:ty)?) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        fn $name($($arg: $kind),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx512($($arg: $kind),*) $(-> $result)? {
                    $body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                #[allow(clippy::too_many_arguments)]
                fn avx2($($arg: $kind),*) $(-> $result)? {
                    $body($($arg),*)
                }
                let has_fma = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
                if has_fma
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                {
                    // SAFETY: the processor has them.
                    return unsafe { avx512($($arg),*) };
                }
                if has_fma {
                    // SAFETY: the processor has them.
                    return unsafe { avx2($($arg),*) };
                }
            }
            $body($($arg),*)
        }
    };
}

pub(crate) use compiled_for_each_processor;
