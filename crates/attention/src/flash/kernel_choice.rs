//! The implementations of flash attention.

use std::fmt;

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
use zoo_kernels::cpu::InstructionSet;

/// The implementation that computes a call of [`flash`](super::flash).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FlashKernel {
    /// CPU kernels with AVX-512.
    CpuAvx512,
    /// CPU kernels with AVX2 and FMA.
    CpuAvx2,
    /// CPU kernels without special instructions.
    CpuPortable,
    /// LibTorch's own kernels, on CUDA.
    Aten,
    /// CubeCL kernels.
    Cube,
    /// CubeCL kernels that use the GPU's matrix instructions, in half precision.
    CubeCmma,
    /// CubeCL kernels for NVIDIA GPUs that keep scores and weights in the registers of their matrix
    /// instructions, in half precision.
    CubeMma,
    /// Tile loops over the backend's operations.
    TileLoops,
    /// The same tile loops, differentiated by autodiff operation by operation, so training keeps
    /// the score matrices in memory. Used if the feature of the backend is not enabled.
    Composite,
}

impl FlashKernel {
    /// Whether this is one of the CPU kernels.
    pub fn is_cpu(self) -> bool {
        matches!(self, Self::CpuAvx512 | Self::CpuAvx2 | Self::CpuPortable)
    }

    /// Whether the kernel multiplies half-precision tensors directly and accumulates in `f32`. The others
    /// compute in `f32`.
    pub fn supports_half(self) -> bool {
        matches!(self, Self::Aten | Self::CubeCmma | Self::CubeMma)
    }

    /// Name of the kernel in tables and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuAvx512 => "cpu-avx512",
            Self::CpuAvx2 => "cpu-avx2",
            Self::CpuPortable => "cpu-portable",
            Self::Aten => "aten",
            Self::Cube => "cube",
            Self::CubeCmma => "cube-cmma",
            Self::CubeMma => "cube-mma",
            Self::TileLoops => "tile-loops",
            Self::Composite => "composite",
        }
    }
}

#[cfg(any(feature = "flex", feature = "ndarray", feature = "tch"))]
impl From<InstructionSet> for FlashKernel {
    fn from(set: InstructionSet) -> Self {
        match set {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => Self::CpuAvx512,
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx2 => Self::CpuAvx2,
            InstructionSet::Portable => Self::CpuPortable,
        }
    }
}

impl fmt::Display for FlashKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
