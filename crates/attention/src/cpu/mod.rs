//! What the CPU kernels of both engines share.

#[cfg(all(test, unix))]
pub(crate) mod guarded;
pub(crate) mod scratch;
pub(crate) mod transpose;
