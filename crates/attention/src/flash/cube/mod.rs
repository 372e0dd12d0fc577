//! Kernels for the backends of CubeCL: wgpu, Vulkan, CUDA.
//!
//! Three kernels iterate over tiles: the forward pass and the query gradient of a query tile, and
//! the key and value gradients of a key tile. Each output element is written by one cube, so no
//! atomics are needed. The kernels read the tile plan on the device and use the formulas of the
//! [tile loops](super::portable). In half precision, NVIDIA GPUs use kernels of their own for calls
//! without options, with [CUDA](mma) and with [Vulkan](cooperative).

// The outer of two nested conditions is often known at compile time and the inner is not. With
// `&&` both would be evaluated on the device.
#![allow(clippy::collapsible_if)]

mod additive;
#[cfg(feature = "autotune")]
mod autotune;
mod backward_keys;
mod backward_queries;
mod bias_gradient;
mod call;
mod cmma;
mod cooperative;
mod cursor;
mod device_plan;
mod finite;
mod forward;
mod fused;
mod gradient;
mod hard;
mod head_parts;
mod launch;
mod launch_args;
mod layout;
mod memory;
mod mma;
mod program;
mod random;
mod score;
mod splits;
mod support;
mod tile;

pub(super) use self::support::kernel_for;
