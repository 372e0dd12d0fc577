//! What the CubeCL kernels of both engines share: rows of tensors, launches, and operations in
//! Burn's fusion queue.

pub(crate) mod delta;
pub(crate) mod launch;
pub(crate) mod matmul;
pub(crate) mod op;
pub(crate) mod rows;
