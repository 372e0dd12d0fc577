//! Kernels for the backends of CubeCL: wgpu, Vulkan, CUDA.
//!
//! Positions are divided into chunks of [`CHUNK`](tile::CHUNK). With `G` and `V` as in the
//! [CPU kernels](super::cpu), three kernels compute a forward pass:
//!
//! 1. [`sum_states`](states::sum_states): `φ(K)ᵀ V` of each chunk, all chunks in parallel;
//! 2. [`scan_states`](states::scan_states): `S`, the sum over the chunks before each, all elements
//!    of a state in parallel;
//! 3. [`attend`](attend::attend): the context of each chunk, from the state before it and from the
//!    causal products within it.
//!
//! The backward pass computes `S` again and, in the same way from the last chunk to the first, the
//! sums `R` of `φ(Q)ᵀ G`. The three gradients are [`attend`](attend::attend) with other operands.
//! Each output element is written by one cube, so no atomics are needed.

// The outer of two nested conditions is often known at compile time and the inner is not. With
// `&&` both would be evaluated on the device.
#![allow(clippy::collapsible_if)]

mod attend;
mod call;
mod fused;
mod launch;
mod states;
mod support;
mod tile;

pub(super) use self::support::supports;
