//! Building blocks of CPU kernels.
//!
//! A kernel is either written over [`Simd`], or is a plain loop over chunks that the compiler
//! vectorizes. Both are compiled once for each [`InstructionSet`] by [`dispatch!`] and selected at
//! run time. Plain loops use `LANES` partial sums, so that the compiler can vectorize them and all
//! processors round alike. [`parallel`] distributes the rows of a batch over threads.

#[cfg(target_arch = "x86_64")]
pub mod bf16;
mod exp;
pub mod gemm;
mod instruction_set;
pub mod matmul;
pub mod parallel;
pub mod scratch;
mod simd;
pub mod transpose;

pub(crate) use self::exp::exp_of_negative;
pub use self::instruction_set::{InstructionSet, dispatch};
#[cfg(target_arch = "x86_64")]
pub use self::simd::{Avx2, Avx512};
pub use self::simd::{Float, Portable, Simd, sigmoid, tanh};

/// Number of partial sums: the lanes of the widest register.
pub(crate) const LANES: usize = 16;

/// The sum of the lanes.
#[inline(always)]
pub(crate) fn sum(lanes: [f32; LANES]) -> f32 {
    // Pairwise: accurate and fast.
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

/// Elementwise `to += elements`.
pub fn add(to: &mut [f32], elements: &[f32]) {
    for (to, element) in to.iter_mut().zip(elements) {
        *to += element;
    }
}
