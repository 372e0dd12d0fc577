//! Which instructions the processor has, and the kernels compiled for them.

use super::Call;
use super::backward::{RowBack, backward_rows};
use super::forward::{Row, forward_rows};
use super::simd::Portable;

pub(super) type Forward = unsafe fn(&Call<'_>, &[f32], &mut [Row<'_>]);
pub(super) type Backward = unsafe fn(&Call<'_>, &[f32], &mut [RowBack<'_>], &mut [f32], &mut [f32]);

/// The instructions this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

impl Kind {
    /// The best kind there is. The standard library asks the processor once.
    pub(super) fn here() -> Self {
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

    pub(super) fn forward(self) -> Forward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::forward,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::forward,
            Self::Portable => forward_rows::<Portable>,
        }
    }

    pub(super) fn backward(self) -> Backward {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::backward,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::backward,
            Self::Portable => backward_rows::<Portable>,
        }
    }
}

/// The kernels with the instructions of a kind enabled around them.
#[cfg(target_arch = "x86_64")]
macro_rules! kernels {
    ($module:ident, $features:literal, $simd:ident) => {
        mod $module {
            use super::super::simd::$simd;
            use super::*;

            #[target_feature(enable = $features)]
            pub(super) unsafe fn forward(call: &Call<'_>, biases: &[f32], rows: &mut [Row<'_>]) {
                // SAFETY: they are enabled here.
                unsafe { forward_rows::<$simd>(call, biases, rows) }
            }

            #[target_feature(enable = $features)]
            pub(super) unsafe fn backward(
                call: &Call<'_>,
                turned: &[f32],
                rows: &mut [RowBack<'_>],
                d_recurrent: &mut [f32],
                d_biases: &mut [f32],
            ) {
                // SAFETY: they are enabled here.
                unsafe { backward_rows::<$simd>(call, turned, rows, d_recurrent, d_biases) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
kernels!(avx512, "avx512f", Avx512);
#[cfg(target_arch = "x86_64")]
kernels!(avx2, "avx2,fma", Avx2);
