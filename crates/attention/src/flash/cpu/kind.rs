//! Which instructions the processor has, and the kernels compiled for them.

use std::ops::Range;

use super::backward::{backward_of_bias_tile, backward_part};
use super::few;
use super::forward::forward_tile;
use super::simd::Portable;
use super::{Call, Out, Upstream};
use crate::flash::Body;

pub(super) type Forward = unsafe fn(&Call<'_>, usize, Range<usize>, &mut [f32], &mut [f32]);
pub(super) type ForwardOfFew = unsafe fn(&Call<'_>, usize, &[(Range<usize>, bool)], &mut [f32]);
pub(super) type Backward = unsafe fn(&Call<'_>, &Upstream<'_>, usize, Range<usize>, Out<'_>);
pub(super) type BackwardOfBias =
    unsafe fn(&Call<'_>, &Upstream<'_>, [usize; 2], usize, [usize; 2], &mut [f32]);

/// The instructions this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kind {
    /// The best kind there is. The standard library asks the processor once.
    pub(in super::super) fn here() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Self::Avx2;
            }
        }
        Self::Portable
    }

    /// What computes with it.
    pub(in super::super) fn body(self) -> Body {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Body::CpuAvx512,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Body::CpuAvx2,
            Self::Portable => Body::CpuPortable,
        }
    }

    pub(super) fn forward(self) -> Forward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::forward,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::forward,
            Self::Portable => forward_tile::<Portable>,
        }
    }

    pub(super) fn forward_of_few(self) -> ForwardOfFew {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::forward_of_few,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::forward_of_few,
            Self::Portable => few::forward_part::<Portable>,
        }
    }

    pub(super) fn backward(self) -> Backward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::backward,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::backward,
            Self::Portable => backward_part::<Portable>,
        }
    }

    pub(super) fn backward_of_bias(self) -> BackwardOfBias {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::backward_of_bias,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::backward_of_bias,
            Self::Portable => backward_of_bias_tile::<Portable>,
        }
    }
}

/// The kernels with the instructions of a kind enabled around them.
#[cfg(target_arch = "x86_64")]
macro_rules! kernels {
    ($module:ident, $features:literal, $simd:ident) => {
        mod $module {
            use super::*;
            use crate::flash::cpu::simd::$simd;

            #[target_feature(enable = $features)]
            pub(super) unsafe fn forward(
                call: &Call<'_>,
                head: usize,
                queries: Range<usize>,
                context: &mut [f32],
                stats: &mut [f32],
            ) {
                // SAFETY: they are enabled here.
                unsafe { forward_tile::<$simd>(call, head, queries, context, stats) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn forward_of_few(
                call: &Call<'_>,
                kv_head: usize,
                tiles: &[(Range<usize>, bool)],
                partial: &mut [f32],
            ) {
                // SAFETY: they are enabled here.
                unsafe { few::forward_part::<$simd>(call, kv_head, tiles, partial) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn backward(
                call: &Call<'_>,
                upstream: &Upstream<'_>,
                kv_head: usize,
                rows: Range<usize>,
                out: Out<'_>,
            ) {
                // SAFETY: they are enabled here.
                unsafe { backward_part::<$simd>(call, upstream, kv_head, rows, out) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn backward_of_bias(
                call: &Call<'_>,
                upstream: &Upstream<'_>,
                head: [usize; 2],
                row: usize,
                strides: [usize; 2],
                d_bias: &mut [f32],
            ) {
                // SAFETY: they are enabled here.
                unsafe {
                    backward_of_bias_tile::<$simd>(call, upstream, head, row, strides, d_bias);
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(avx512, "avx512f", Avx512);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, "avx2,fma", Avx2);
