//! What kernels for CPUs are built on.
//!
//! A kernel is either written over [`Simd`], or is a plain loop over chunks that the compiler
//! vectorizes. Both are compiled once for each [`InstructionSet`] by
//! [`dispatch!`]; which one runs is decided when it runs. Plain loops sum by
//! `LANES` partial sums, so that a compiler may put them side by side, and so that they are
//! the same whatever the processor. Rows of a batch are spread over threads by [`parallel`].

pub(crate) mod exp;
mod instruction_set;
pub mod matmul;
pub mod parallel;
mod simd;

pub use self::instruction_set::{InstructionSet, dispatch};
#[cfg(target_arch = "x86_64")]
pub use self::simd::{Avx2, Avx512};
pub use self::simd::{Portable, Simd, sigmoid, tanh};

/// Elements that are summed side by side: those of the widest register.
pub(crate) const LANES: usize = 16;

/// The sum of the lanes.
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

/// Adds elements to others.
pub fn add(into: &mut [f32], elements: &[f32]) {
    for (into, element) in into.iter_mut().zip(elements) {
        *into += element;
    }
}
