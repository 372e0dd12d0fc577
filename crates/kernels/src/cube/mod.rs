//! Kernels of CubeCL backends: custom operations in Burn's fusion queue, and the matmul in `f32`.

pub(crate) mod matmul;
pub mod op;
