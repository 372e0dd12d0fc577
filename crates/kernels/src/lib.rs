//! Kernels for Burn: what a training step does besides matmuls and attention, each as one op
//! that goes through memory once, with a gradient written by hand where there is one; and what
//! kernels for CPUs are built on.
//!
//! Flex, NdArray and LibTorch on the CPU share a kernel for each, which works on the tensors'
//! own memory. On CUDA, Adam and the norm are LibTorch's own kernels. Everywhere else an op is
//! what Burn has for it: CubeCL fuses such operations by itself.
//!
//! No backend is named by who uses it: tensors bring their device with them. A backend's own
//! kernels are compiled in by the feature of its name; without it the result is the same.

mod adam;
#[cfg(feature = "tch")]
pub mod aten;
pub mod autodiff;
pub mod cpu;
mod dropout;
pub mod hosts;
mod layer_norm;
mod loss;
pub mod precision;
pub mod random;
pub mod recurrent;
#[doc(hidden)]
pub mod reference;

pub use adam::{Adam, AdamConfig, AdamKind};
pub use dropout::{add_dropout, dropout, relu_dropout};
pub use hosts::location::has_kernels;
pub use layer_norm::layer_norm;
pub use loss::smoothed_cross_entropy;
#[doc(hidden)]
pub use reference::without_kernels;

/// The README, whose example is compiled with the tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
