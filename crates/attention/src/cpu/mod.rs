//! What the tests of the CPU kernels of both engines share.

pub(crate) mod guarded;
