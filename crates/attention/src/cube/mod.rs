//! What the CubeCL kernels of both engines share: rows of tensors, launches, and operations in
//! Burn's fusion queue.

pub(crate) mod delta;
pub(crate) mod launch;
pub(crate) mod rows;

pub(crate) use zoo_kernels::cube::op;
