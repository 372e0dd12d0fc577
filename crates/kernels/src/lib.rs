//! Fused kernels for Burn: the parts of a training step other than attention, each a single op with
//! a hand-written backward pass, and building blocks for CPU kernels.
//!
//! Flex, NdArray and LibTorch on the CPU share one kernel per op, which works on the tensors' own
//! memory. On CUDA, Adam and layer norm use LibTorch's kernels. On other devices, an op calls
//! Burn's operations, which CubeCL fuses, except for matmuls in `f32` on `cuda`: Burn would round
//! their operands to TF32.
//!
//! Callers do not name a backend: tensors carry their device. The kernels of a backend are compiled
//! in by the feature of its name; without it the result is the same.

mod adam;
#[cfg(feature = "tch")]
pub mod aten;
pub mod autodiff;
mod convolution;
pub mod cpu;
#[cfg(feature = "cube")]
pub mod cube;
mod dropout;
mod embedding;
pub mod hosts;
mod layer_norm;
mod linear;
mod loss;
pub mod matmul;
pub mod precision;
pub mod random;
pub mod recurrent;
#[doc(hidden)]
pub mod reference;

pub use adam::{Adam, AdamConfig, AdamKind};
pub use convolution::causal_convolution;
pub use dropout::{add_dropout, dropout, relu_dropout};
pub use embedding::embedding;
pub use hosts::location::{has_kernels, is_on_host};
pub use layer_norm::{layer_norm, rms_norm};
pub use linear::{Activation, linear, linear_transposed};
pub use loss::smoothed_cross_entropy;
pub use matmul::allow_tf32;
#[doc(hidden)]
pub use reference::without_kernels;

/// Compiles the README's example as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
