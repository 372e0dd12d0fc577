//! Kernels for the backends of CubeCL: wgpu, Vulkan, CUDA.
//!
//! Three of them go over tiles: one computes the context and the log-sum-exp of a tile of
//! queries, one the gradient by a tile of queries, and one the gradients by a tile of keys
//! and their values, so that none writes what another adds to. They read the tile plan on
//! the device, and compute the same as the [portable body](super::portable), whose formulas
//! they follow.

// The outer of two conditions is often known when a kernel is compiled, and the inner is
// not: joined by `&&` both would be asked on the device.
#![allow(clippy::collapsible_if)]

mod able;
mod backward_keys;
mod backward_queries;
mod call;
mod device_plan;
mod finite;
mod forward;
mod fused;
mod launch;
mod layout;
mod matrices;
mod mean;
mod memory;
mod score;
mod tile;
#[cfg(feature = "autotune")]
mod tuned;

pub(super) use self::able::body;
